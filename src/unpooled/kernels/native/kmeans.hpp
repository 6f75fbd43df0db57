// The kernel kmeans: a whole k-means at each site, for any d, k, n, with weights or without.
//
// A site is searched in PairSpace (pairspace.hpp) where use_pairs() of paths.hpp says so, else in RowSpace
// (rowspace.hpp); the restarts and swaps are those of restarts_and_swaps.hpp either way. A site is never split: one
// thread searches it from beginning to end.
#pragma once
#include <memory>

#include "pairspace.hpp"
#include "rowspace.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

template <class T>
class KMeansWorker {
public:
    KMeansWorker(int64_t k, int64_t d, bool weighted) : k_(k), d_(d), weighted_(weighted), order_(k) {}

    // Into zeros.
    void run(const Rows& rows, int64_t s, uint64_t seed, const KMeansPlan& plan, double* centers, double* mass,
             double* squares, double* inertia) {
        site_.enter(rows, s, keep_labels(1, d_, k_) ? LABELLED_VALUES : LANE_VALUES);
        costs_.enter(site_.w, site_.n);
        const int64_t k = smaller(k_, costs_.positive());
        if (k == 0) return;
        Random random(seed);
        if (use_pairs(site_.n, d_, k, plan)) {
            if (!pairs_) pairs_.reset(new PairSpace<T>(k_, d_, weighted_));
            pairs_->enter(site_, costs_);
            restarts_and_swaps(*pairs_, k, site_.n, random, plan, order_.get());
            pairs_->write(plan.max_iter > 0, centers, mass, squares, inertia);
        } else {
            if (!rows_) rows_.reset(new RowSpace<T>(k_, d_, weighted_));
            rows_->enter(site_, costs_);
            restarts_and_swaps(*rows_, k, site_.n, random, plan, order_.get());
            rows_->write(centers, mass, squares, inertia);
        }
    }

private:
    int64_t k_, d_;
    bool weighted_;
    Site<T> site_;
    Costs costs_;
    Buffer<int64_t> order_;
    std::unique_ptr<RowSpace<T>> rows_;
    std::unique_ptr<PairSpace<T>> pairs_;
};

template <class T>
void kmeans(const Rows& rows, int64_t k, const uint64_t* seeds, const KMeansPlan& plan, const KMeansOut& out,
            int threads) {
    const int64_t d = rows.d;
    threads = useful_threads(threads, static_cast<double>(rows.n) * k * d * 10 * plan.n_init);
    const WorkItems items(rows, false, 0);
    Team<KMeansWorker<T>> team(threads, [&] { return new KMeansWorker<T>(k, d, rows.weights != nullptr); });
    clear(out.centers, rows.sites * k * d);
    clear(out.mass, rows.sites * k);
    clear(out.squares, rows.sites * k);
    clear(out.inertia, rows.sites);
    auto work = [&](int64_t at, int worker) {
        for (int64_t s = items[at].first_site; s < items[at].last_site; ++s)
            team[worker].run(rows, s, seeds[s], plan, out.centers + s * k * d, out.mass + s * k, out.squares + s * k,
                             out.inertia + s);
    };
    each(threads, items.count(), work);
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
