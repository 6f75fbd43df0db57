// A whole k-means at each site.
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
        site_.enter(rows, s);
        costs_.enter(site_.w, site_.n);
        const int64_t k = smaller(k_, costs_.positive());
        if (k == 0) return;
        Random random(seed);
        if (pairs_pay(k, plan)) {
            if (!pairs_) pairs_.reset(new PairSpace<T>(k_, d_, weighted_));
            pairs_->enter(site_, costs_);
            search(*pairs_, k, site_.n, random, plan, order_.get());
            pairs_->write(plan.max_iter > 0, centers, mass, squares, inertia);
        } else {
            if (!rows_) rows_.reset(new RowSpace<T>(k_, d_, weighted_));
            rows_->enter(site_, costs_);
            search(*rows_, k, site_.n, random, plan, order_.get());
            rows_->write(centers, mass, squares, inertia);
        }
    }

private:
    // Whether the distances between all rows are worth taking: if a step is cheaper with them, and enough steps
    // follow to make up for taking them.
    bool pairs_pay(int64_t k, const KMeansPlan& plan) const {
        const int64_t n = site_.n, starts = plan.n_init + plan.swaps;
        const int64_t steps = starts * (few_of(k) + smaller<int64_t>(plan.max_iter, 10));
        return d_ > MOST_HELD && n <= MOST_PAIRED && 2 * n <= k * d_ && n <= 4 * k * steps;
    }

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
    const Items items(rows, false, 0);
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
