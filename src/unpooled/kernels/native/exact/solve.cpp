// The exact solver's course: move rows to their mean, order them, bound their suffixes, find a good start, search.
#include "solve.hpp"

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>

#include "search.hpp"

namespace unpooled {
namespace exact {

namespace {

// Farthest first: rows that must lie apart come early, so that costs show early.
std::vector<int> farthest_first(int n, int d, const double* x) {
    std::vector<double> near(n, 0.0);
    for (int i = 0; i < n; ++i)
        for (int l = 0; l < d; ++l) near[i] += x[i * d + l] * x[i * d + l];
    std::vector<int> order;
    std::vector<char> taken(n, 0);
    for (int t = 0; t < n; ++t) {
        int next = -1;
        for (int i = 0; i < n; ++i)
            if (!taken[i] && (next < 0 || near[i] > near[next])) next = i;
        taken[next] = 1;
        order.push_back(next);
        for (int i = 0; i < n; ++i) {
            double away = 0;
            for (int l = 0; l < d; ++l) away += (x[i * d + l] - x[next * d + l]) * (x[i * d + l] - x[next * d + l]);
            near[i] = t == 0 ? away : std::min(near[i], away);
        }
    }
    return order;
}

}  // namespace

void solve(const Task& task, Result& result) {
    const int n = task.n, d = task.d, K = task.k;
    const Clock clock(task.seconds);
    // about the mean, where sums of squares lose least
    std::vector<double> mean(d, 0.0), x(task.x, task.x + static_cast<size_t>(n) * d);
    double mass = 0;
    for (int i = 0; i < n; ++i) mass += task.w[i];
    for (int i = 0; i < n; ++i)
        for (int l = 0; l < d; ++l) mean[l] += task.w[i] * x[i * d + l] / mass;
    for (int i = 0; i < n; ++i)
        for (int l = 0; l < d; ++l) x[i * d + l] -= mean[l];

    const std::vector<int> order = farthest_first(n, d, x.data());
    Points points(n, d);
    for (int t = 0; t < n; ++t) points.put(t, &x[order[t] * d], task.w[order[t]]);

    Problem problem(points, K);
    double constant = 0;
    if (task.q) constant = problem.price(task.q, mean.data());
    problem.enclose(task.lo, task.hi, mean.data());
    if (task.symmetry == kCell) problem.cells(task.r, task.references, task.cell, mean.data());
    else if (task.symmetry != kNone) problem.couple(task.r, task.symmetry, mean.data());
    problem.prepare();

    result.nodes = 0;
    if (!problem.possible()) {  // no centroids fit their regions: nothing is cheaper than infinity
        result.value = result.lower = kInf;
        result.proved = true;
        for (int k = 0; k < K; ++k)
            for (int l = 0; l < d; ++l) result.centers[k * d + l] = 0.5 * (task.lo[k * d + l] + task.hi[k * d + l]);
        std::fill(result.labels, result.labels + n, 0);
        return;
    }

    Best best(n);
    if (!task.suffix_known) fill_suffixes(points, K, clock, task.nodes, task.suffix, problem.plain() ? &best : nullptr);
    problem.suffix = task.suffix;
    std::vector<int> labels(n);
    if (task.warm) {
        for (int t = 0; t < n; ++t) labels[t] = task.warm[order[t]];
        problem.improve(labels, 0, best);
    }
    problem.try_starts(task.starts, best);

    Search search(problem, 0, clock, task.nodes, best);
    search.run();
    problem.settle(best);

    result.nodes = search.nodes();
    result.value = best.value + constant;
    result.lower = std::max(search.lower(), problem.plain() ? task.suffix[0] : -kInf) + constant;
    result.proved = search.complete();
    for (int t = 0; t < n; ++t) result.labels[order[t]] = best.labels[t];
    for (int k = 0; k < K; ++k)
        for (int l = 0; l < d; ++l) result.centers[k * d + l] = best.centers[k * d + l] + mean[l];
}

}  // namespace exact
}  // namespace unpooled
