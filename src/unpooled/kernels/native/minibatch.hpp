// The kernel minibatch: mini-batch k-means at each site, for any d, k, n, with weights or without. Every batch is one
// Stepper::step() (site.hpp) over a site of its own.
#pragma once
#include "random.hpp"
#include "site.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// Triebe & Rajagopal's client: batches in shuffled order, each pulling the centres by its share of the count.
template <class T>
void minibatch(const Rows& rows, const double* centers, int64_t k, const uint64_t* seeds, const MiniBatchPlan& plan,
               const MiniBatchOut& out, int threads) {
    const int64_t d = rows.d;
    threads = useful_threads(threads, static_cast<double>(rows.n) * k * d * plan.epochs);
    const WorkItems items(rows, false);
    Team<Stepper<T>> team(threads, [&] { return new Stepper<T>(k, d, rows.weights != nullptr); });
    auto one_site = [&](int64_t s, Stepper<T>& stepper) {
        double *gamma = out.centers + s * k * d, *lambda = out.mass + s * k, *squares = out.squares + s * k;
        copy(gamma, centers, k * d);
        clear(lambda, k);
        clear(squares, k);
        const int64_t begin = rows.offsets[s], end = rows.offsets[s + 1];
        if (begin == end) return;
        const int64_t size = plan.batch ? plan.batch : end - begin, batches = (end - begin + size - 1) / size;
        Buffer<int64_t> order(batches);
        for (int64_t b = 0; b < batches; ++b) order[b] = b;
        Random random(seeds[s]);
        for (int64_t epoch = 0; epoch < plan.epochs; ++epoch) {
            clear(lambda, k);
            clear(squares, k);
            for (int64_t i = batches - 1; i > 0; --i) {
                const int64_t j = random.below(i + 1), last = order[i];
                order[i] = order[j];
                order[j] = last;
            }
            for (int64_t b = 0; b < batches; ++b) {
                const int64_t edges[2] = {begin + order[b] * size, smaller(begin + (order[b] + 1) * size, end)};
                Rows part = rows;
                part.offsets = edges;
                Site<T> site;
                site.enter(part, 0);
                stepper.step(site, gamma, true);
                for (int64_t j = 0; j < k; ++j) {
                    lambda[j] += stepper.mass[j];
                    squares[j] += stepper.squares[j];
                    if (!(stepper.mass[j] > 0)) continue;
                    // Lambda_b / Lambda times (batch mean - centre) is the residual sum over Lambda
                    for (int64_t t = j * d; t < (j + 1) * d; ++t)
                        gamma[t] += plan.rate * (stepper.sums[t] / lambda[j]);
                }
            }
        }
    };
    auto work = [&](int64_t at, int worker) {
        for (int64_t s = items[at].first_site; s < items[at].last_site; ++s) one_site(s, team[worker]);
    };
    each(threads, items.count(), work);
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
