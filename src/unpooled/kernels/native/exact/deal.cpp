// Rows dealt to parts: round robin, then swaps within clusters.
#include "deal.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace unpooled {
namespace exact {

namespace {

constexpr int kPartners = 200;  // rows that a row is compared with in a sweep

class Cluster {
public:
    // The rows of a cluster about its mean, times their weights.
    Cluster(const DealTask& task, std::vector<int64_t> rows) : rows_(std::move(rows)), task_(task), d_(task.d) {
        std::vector<double> mean(d_, 0.0);
        double mass = 0;
        for (int64_t i : rows_) mass += task.w[i];
        for (int64_t i : rows_)
            for (int l = 0; l < d_; ++l) mean[l] += task.w[i] / mass * task.x[i * d_ + l];
        std::vector<double> away;
        for (int64_t i : rows_) {
            double square = 0;
            for (int l = 0; l < d_; ++l) {
                const double t = task.x[i * d_ + l] - mean[l];
                square += t * t;
            }
            away.push_back(square);
        }
        std::vector<int64_t> order(rows_.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return away[a] > away[b]; });
        std::vector<int64_t> sorted;
        for (int64_t o : order) sorted.push_back(rows_[o]);
        rows_ = std::move(sorted);
        for (int64_t i : rows_)
            for (int l = 0; l < d_; ++l) moments_.push_back(task.w[i] * (task.x[i * d_ + l] - mean[l]));
    }

    // Deal the rows in turn, beginning with part `turn`.
    void round_robin(int64_t& turn, int32_t* part) const {
        for (int64_t i : rows_) part[i] = static_cast<int32_t>(turn++ % task_.parts);
    }

    // Swap rows with those of other parts while the sum over parts of |sum of moments|^2 / mass falls.
    void swap(int sweeps, int32_t* part) const {
        const int64_t m = static_cast<int64_t>(rows_.size());
        std::vector<double> sums(static_cast<size_t>(task_.parts) * d_, 0.0), mass(task_.parts, 0.0);
        for (int64_t a = 0; a < m; ++a) {
            const int p = part[rows_[a]];
            mass[p] += task_.w[rows_[a]];
            for (int l = 0; l < d_; ++l) sums[static_cast<size_t>(p) * d_ + l] += moments_[a * d_ + l];
        }
        const int64_t stride = std::max<int64_t>(1, m / kPartners);
        for (int sweep = 0; sweep < sweeps; ++sweep) {
            bool moved = false;
            for (int64_t a = 0; a < m; ++a) {
                const int p = part[rows_[a]];
                int64_t with = -1;
                double most = 0;
                for (int64_t b = (a + sweep) % stride; b < m; b += stride) {
                    const int q = part[rows_[b]];
                    if (q == p) continue;
                    const double by = gain(a, p, b, q, sums, mass);
                    if (by > most) most = by, with = b;
                }
                if (with < 0) continue;
                const int q = part[rows_[with]];
                for (int l = 0; l < d_; ++l) {
                    const double change = moments_[with * d_ + l] - moments_[a * d_ + l];
                    sums[static_cast<size_t>(p) * d_ + l] += change;
                    sums[static_cast<size_t>(q) * d_ + l] -= change;
                }
                const double change = task_.w[rows_[with]] - task_.w[rows_[a]];
                mass[p] += change, mass[q] -= change;
                std::swap(part[rows_[a]], part[rows_[with]]);
                moved = true;
            }
            if (!moved) break;
        }
    }

private:
    std::vector<int64_t> rows_;    // farthest first
    std::vector<double> moments_;  // (rows, d)
    const DealTask& task_;
    int d_;

    double gain(int64_t a, int p, int64_t b, int q, const std::vector<double>& sums, const std::vector<double>& mass) const {
        const double change = task_.w[rows_[b]] - task_.w[rows_[a]];
        const double P = mass[p] + change, Q = mass[q] - change;
        if (!(P > 0) || !(Q > 0)) return 0;
        double before_p = 0, before_q = 0, after_p = 0, after_q = 0;
        for (int l = 0; l < d_; ++l) {
            const double c = moments_[b * d_ + l] - moments_[a * d_ + l];
            const double sp = sums[static_cast<size_t>(p) * d_ + l], sq = sums[static_cast<size_t>(q) * d_ + l];
            before_p += sp * sp, before_q += sq * sq;
            after_p += (sp + c) * (sp + c), after_q += (sq - c) * (sq - c);
        }
        const double before = before_p / mass[p] + before_q / mass[q];
        const double gained = before - after_p / P - after_q / Q;
        return gained > 1e-9 * before ? gained : 0;
    }
};

}  // namespace

void deal(const DealTask& task, int32_t* part) {
    std::vector<std::vector<int64_t>> members(task.k);
    for (int64_t i = 0; i < task.n; ++i) members[task.labels[i]].push_back(i);
    int64_t turn = 0;
    for (auto& rows : members) {
        if (rows.empty()) continue;
        const Cluster cluster(task, std::move(rows));
        cluster.round_robin(turn, part);
        cluster.swap(task.sweeps, part);
    }
}

}  // namespace exact
}  // namespace unpooled
