// The course of a whole k-means for any d, k, n: restarts, each seeded and run to its end, then random swaps; and what
// both spaces (rowspace.hpp, pairspace.hpp) share: drawing rows (pick), costs of rows (Costs), rows for empty clusters
// (relocate). The order of draws is that of reference_kmeans.py.
#pragma once
#include "random.hpp"
#include "site.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

constexpr int64_t SWAP_ITERATIONS = 10;

// What counts as lower: two equal costs, summed in another order, differ by rounding alone.
constexpr double LESS = 1 - 1e-12;

// The row whose stretch of the running sums holds the uniform number; never one of weight 0.
inline int64_t pick(const double* running, int64_t n, double uniform) {
    const double total = running[n - 1], target = uniform * total;
    int64_t low = 0, high = n - 1;  // the first row above the target or, rounding apart, the one that reaches the total
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (running[middle] > target || running[middle] == total)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// The weights of a site's rows, up to a whole vector of lanes, and running sums of what they cost.
class Costs {
public:
    void enter(const double* w, int64_t n) {
        n_ = n;
        const int64_t padded = round_up(n, W);
        weights_.resize(padded);
        running_.resize(padded);
        positive_ = 0;
        for (int64_t i = 0; i < padded; ++i) {
            weights_[i] = i >= n ? 0.0 : w ? w[i] : 1.0;
            positive_ += weights_[i] > 0;
        }
    }

    // Running sums of w values, or of w alone.
    const double* run(const double* values) {
        double sum = 0;
        for (int64_t i = 0; i < n_; ++i) {
            sum += values ? weights_[i] * values[i] : weights_[i];
            running_[i] = sum;
        }
        return running_.get();
    }

    const double* weights() const { return weights_.get(); }
    double weight(int64_t i) const { return weights_[i]; }
    int64_t positive() const { return positive_; }
    int64_t rows() const { return n_; }

private:
    Buffer<double> weights_, running_;
    int64_t n_ = 0, positive_ = 0;
};

// Gives each empty cluster the row that costs most where it is, unless it is alone there: taken(j, row). `cost` is
// w d^2 of each row, and is used up.
template <class Taken>
void relocate(const Costs& costs, int64_t k, int64_t* labels, double* cost, int64_t* counts, Taken&& taken) {
    for (int64_t j = 0; j < k; ++j) counts[j] = 0;
    for (int64_t i = 0; i < costs.rows(); ++i) counts[labels[i]] += costs.weight(i) > 0;
    for (int64_t j = 0; j < k; ++j) {
        if (counts[j] > 0) continue;
        int64_t worst = -1;
        double most = 0;
        for (int64_t i = 0; i < costs.rows(); ++i) {
            if (cost[i] > most && counts[labels[i]] > 1) {
                most = cost[i];
                worst = i;
            }
        }
        if (worst < 0) return;
        --counts[labels[worst]];
        counts[j] = 1;
        cost[worst] = 0;
        taken(j, worst);
        labels[worst] = j;
    }
}

inline void order_by(const double* loss, int64_t k, int64_t* order) {
    for (int64_t j = 0; j < k; ++j) {
        int64_t at = j;
        for (; at > 0 && loss[j] < loss[order[at - 1]]; --at) order[at] = order[at - 1];
        order[at] = j;
    }
}

// The whole search. What a centre is, and how far rows are from it, is up to the space, which has
//
//   seed(k, random)       tried = greedy k-means++ with at most k centres
//   lloyd(max_iter)       tried = Lloyd from tried; gives its inertia
//   keep()                found = tried
//   restore()             tried = found
//   replace(j, row)       centre j of tried = that row
//   weigh(order)          orders the centres of found by what losing them would cost; gives the running sums of what
//                         each row costs now
//   used()                the number of centres of found
template <class Space>
void restarts_and_swaps(Space& space, int64_t k, int64_t n, Random& random, const KMeansPlan& plan, int64_t* order) {
    double best = 0;
    for (int64_t restart = 0; restart < plan.n_init; ++restart) {
        space.seed(k, random);
        const double inertia = space.lloyd(plan.max_iter);
        if (restart == 0 || inertia < best * LESS) {
            space.keep();
            best = inertia;
        }
    }
    const int64_t used = space.used();
    if (plan.swaps == 0 || plan.max_iter == 0 || used == 1) return;
    const int64_t tries = smaller(used, candidates_for(used));
    const double* running = nullptr;
    for (int64_t swap = 0; swap < plan.swaps; ++swap) {
        if (!running) running = space.weigh(order);
        if (!(running[n - 1] > 0)) break;
        const int64_t removed = order[random.below(tries)];
        space.restore();
        space.replace(removed, pick(running, n, random.uniform()));
        const double inertia = space.lloyd(smaller(plan.max_iter, SWAP_ITERATIONS));
        if (inertia < best * LESS) {
            space.keep();
            best = inertia;
            running = nullptr;
        }
    }
    space.restore();
    space.lloyd(plan.max_iter);
    space.keep();
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
