// The exact solver's course: move rows to their mean, order them, bound their suffixes, find a good start, search.
#include "solve.hpp"


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

// Arrays of the task in units in which no square overflows or vanishes; exact, since units are powers of two.
std::vector<double> scaled(const double* given, size_t size, int power) {
    std::vector<double> out(given, given + size);
    if (power)
        for (double& x : out) x = std::ldexp(x, -power);
    return out;
}

// The largest difference between two rows in a column, halved.
double extent(int n, int d, const double* x) {
    double most = 0;
    for (int l = 0; l < d; ++l) {
        double low = x[l], high = x[l];
        for (int i = 1; i < n; ++i) low = std::min(low, x[i * d + l]), high = std::max(high, x[i * d + l]);
        most = std::max(most, 0.5 * high - 0.5 * low);
    }
    return most;
}

bool all_finite(const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); });
}

// Do all boxes hold all rows?
bool around(const Task& task) {
    for (int i = 0; i < task.n; ++i)
        for (int j = 0; j < task.k * task.d; ++j) {
            const double x = task.x[i * task.d + j % task.d];
            if (x < task.lo[j] || x > task.hi[j]) return false;
        }
    return true;
}

// The means of the rows of every cluster, as near as a float64 comes; `empty` (d,) where there are none.
void means(const Task& task, const int32_t* labels, const double* empty, double* centers) {
    const int d = task.d;
    for (int k = 0; k < task.k; ++k) {
        const double* first = nullptr;
        double mass = 0;
        std::vector<double> sums(d, 0.0);
        for (int i = 0; i < task.n; ++i) {
            if (labels[i] != k) continue;
            const double* x = task.x + static_cast<size_t>(i) * d;
            if (!first) first = x;
            mass += task.w[i];
            for (int l = 0; l < d; ++l) sums[l] += task.w[i] * (0.5 * x[l] - 0.5 * first[l]);
        }
        for (int l = 0; l < d; ++l) centers[k * d + l] = first ? first[l] + 2 * (sums[l] / mass) : empty[l];
    }
}

}  // namespace

void solve(const Task& task, Result& result) {
    const int n = task.n, d = task.d, K = task.k;
    const size_t size = static_cast<size_t>(K) * d;
    const Clock clock(task.seconds);
    Units units;
    const double widest = extent(n, d, task.x);
    if (widest > 0) units.rows = Units::power(widest);
    units.weights = Units::power(*std::max_element(task.w, task.w + n));
    const std::vector<double> given = scaled(task.x, static_cast<size_t>(n) * d, units.rows);
    const std::vector<double> w = scaled(task.w, n, units.weights);
    const std::vector<double> lo = scaled(task.lo, size, units.rows), hi = scaled(task.hi, size, units.rows);
    const std::vector<double> r = scaled(task.r, static_cast<size_t>(task.references) * d, units.rows);
    const std::vector<double> q = task.q ? scaled(task.q, size, units.rows + units.weights) : std::vector<double>();

    // about a point near the mean, where prices and boxes lose least; any point is as true
    std::vector<double> mean(d, 0.0), x = given;
    double mass = 0;
    for (int i = 0; i < n; ++i) mass += w[i];
    for (int i = 0; i < n; ++i)
        for (int l = 0; l < d; ++l) mean[l] += w[i] / mass * x[i * d + l];
    for (int i = 0; i < n; ++i)
        for (int l = 0; l < d; ++l) x[i * d + l] -= mean[l];

    const std::vector<int> order = farthest_first(n, d, x.data());
    Points points(n, d);
    for (int t = 0; t < n; ++t) {
        points.put(t, &x[order[t] * d], w[order[t]]);
        for (int u = 0; u < t; ++u) points.measure(t, u, &given[order[t] * d], &given[order[u] * d]);
    }

    Problem problem(points, K);
    ExactSum constant;  // what prices pay at the origin
    problem.q = q;
    for (size_t i = 0; i < q.size(); ++i) constant.add(q[i], mean[i % d]);
    problem.enclose(lo.data(), hi.data(), mean.data(), around(task));
    if (task.symmetry == kCell) problem.cells(r.data(), task.references, task.cell, mean.data());
    else if (task.symmetry != kNone) problem.couple(r.data(), task.symmetry, mean.data());
    const bool usable = all_finite(q) && all_finite(lo) && all_finite(hi) && all_finite(r) && all_finite(x);
    if (usable) problem.prepare();

    result.nodes = result.before = 0;
    if (!usable || !problem.possible()) {  // no centroids fit their regions: nothing is cheaper than infinity
        result.value = kInf;
        result.lower = usable ? kInf : -kInf;
        result.complete = result.proved = usable;
        for (size_t i = 0; i < size; ++i) result.centers[i] = 0.5 * task.lo[i] + 0.5 * task.hi[i];
        std::fill(result.labels, result.labels + n, 0);
        return;
    }

    Best best(n);
    if (!task.suffix_known)
        result.before = fill_suffixes(points, K, clock, task.nodes, task.suffix, problem.plain() ? &best : nullptr);
    problem.suffix = task.suffix;
    std::vector<int> labels(n);
    if (task.warm) {
        for (int t = 0; t < n; ++t) labels[t] = task.warm[order[t]];
        problem.improve(labels, 0, best);
    }
    problem.try_starts(task.starts, best);
    if (!(best.value < kInf)) {  // some partition, at least
        for (int t = 0; t < n; ++t) labels[t] = t % K;
        problem.improve(labels, 0, best);
    }

    Search search(problem, 0, clock, task.nodes, best);
    search.run();

    double lower = search.lower(), upper = best.upper;
    if (problem.plain()) {
        lower = std::max({0.0, lower, task.suffix[0]});
    } else if (!q.empty()) {
        const double at = constant.value();
        lower += at - rounding(8) * (std::fabs(lower) + std::fabs(at));
        upper += at + rounding(8) * (std::fabs(upper) + std::fabs(at));
    }
    result.nodes = search.nodes();
    result.value = units.up(upper);
    result.lower = std::isnan(lower) ? -kInf : units.down(lower);
    if (problem.plain()) result.lower = std::max(0.0, result.lower);
    result.complete = search.complete() && result.lower > -kInf;
    result.proved = result.complete && (!problem.plain() || result.lower >= result.value * (1 - 1e-9));
    for (int t = 0; t < n; ++t) result.labels[order[t]] = best.labels[t];
    if (problem.plain()) {
        for (double& l : mean) l = std::ldexp(l, units.rows);
        means(task, result.labels, mean.data(), result.centers);
    } else {
        for (size_t i = 0; i < size; ++i) result.centers[i] = std::ldexp(best.centers[i] + mean[i % d], units.rows);
    }
}

}  // namespace exact
}  // namespace unpooled
