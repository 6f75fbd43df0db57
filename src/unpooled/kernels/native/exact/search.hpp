// The search: depth-first branch and bound over the rows of a Problem, and the suffix bounds that feed it.
#pragma once
#include "descent.hpp"

namespace unpooled {
namespace exact {

constexpr double kThetas[] = {0.0, 0.5};
constexpr int kThetaCount = 2;

// At a partial assignment with the rows R left, the cost is at least the largest of
//   sum_k f_k + W(R)                                     W: the optimum of R alone, without prices
//   sum_k f_k + theta W(R) + sum over R of min_k max{ (1-theta) a_k / (a_k + (1-theta) w(R)) |y - m_k|^2,
//                                                     (1-theta) dist^2(y, region_k) }
// The second holds since a cluster's cost grows from its argmin m_k by a_k |m - m_k|^2, which its future rows share.
// An empty cluster has a_k = 0, but leaving the point where it is cheapest costs q_k . m - min q_k . m >= 0, which
// its future rows share as well. Without prices |y - m_k|^2 comes from distances between rows: the weighted mean of the
// squared distances of y from the cluster's rows, less the scatter per weight. Every number is rounded down, and a
// branch ends only where its bound, so rounded, reaches the cut.
class Search {
public:
    Search(const Problem& problem, int first, const Clock& clock, int64_t limit, Best& best)
        : p_(problem), first_(first), clock_(clock), limit_(limit), best_(best), K_(problem.K),
          cut_(problem.cut(best)), least_(problem.n) {
        const int depth = p_.n - first_ + 1;
        coupled_ = !p_.couplings.empty();
        candidates_.resize(static_cast<size_t>(depth) * K_);
        for (Candidate& c : candidates_) {
            c.set.resize(K_);
            c.own = nullptr;
        }
        if (!p_.q.empty()) share_prices();
    }

    void run() {
        std::vector<Cluster*> set(K_);
        for (int k = 0; k < K_; ++k) {
            set[k] = p_.make();
            p_.clear(*set[k], k);
            if (!p_.plain()) distances(*set[k], first_);
        }
        std::vector<double> mu(p_.couplings.size(), 0.0);
        path_.assign(p_.n, 0);
        const double total = p_.total(set.data()), bound = plus(total, suffix(first_));
        if (!(bound >= cut_)) descend(first_, set.data(), mu.data(), bound, 0);
    }

    bool complete() const { return !stopped_; }
    int64_t nodes() const { return nodes_; }
    double lower() const { return std::min(open_, cut_); }

private:
    struct Candidate {
        std::vector<Cluster*> set;
        Cluster* own;  // the cluster that takes the row
        std::vector<Cluster*> copies;
        std::vector<double> mu;
        double bound;
        int k;
    };

    const Problem& p_;
    const int first_;
    const Clock& clock_;
    const int64_t limit_;
    Best& best_;
    const int K_;
    double cut_;
    bool coupled_ = false, stopped_ = false;
    int64_t nodes_ = 0;
    double open_ = kInf;
    std::vector<Candidate> candidates_;
    std::vector<int> path_;
    std::vector<double> least_;
    std::vector<double> opening_;  // (thetas, n, K, n): what a row pays at least in a cluster that is still empty

    double suffix(int t) const { return p_.suffix ? p_.suffix[t] : 0.0; }

    // A cost and what is at least added to it, rounded down.
    static double plus(double cost, double added) {
        return cost + added - rounding(3) * (std::fabs(cost) + std::fabs(added));
    }

    void share_prices() {
        const int n = p_.n, d = p_.d;
        opening_.assign(static_cast<size_t>(kThetaCount) * n * K_ * n, 0.0);
        double m, off;
        for (int i = 0; i < kThetaCount; ++i) {
            const double keep = 1 - kThetas[i];
            for (int t = first_; t < n; ++t) {  // the rows t.. are left
                for (int k = 0; k < K_; ++k) {
                    const Region& region = p_.regions[k];
                    double* out = &opening_[((static_cast<size_t>(i) * n + t) * K_ + k) * n];
                    for (int y = t; y < n; ++y) {
                        // of all rows left the shares sum to at most one
                        const double share = p_.points.w[y] / p_.points.rest[t] * (1 - 2 * p_.points.error);
                        const double base = share * p_.empty[k];
                        double pays = -base, error = 0, size = std::fabs(base);
                        for (int l = 0; l < d; ++l) {
                            const double price = share * p_.q[k * d + l], loose = rounding(2) * std::fabs(price);
                            const Parabola one{keep * p_.points.w[y], 0.0, p_.points.at(y, l), p_.points.blur[l],
                                               price, loose, rounding(4)};
                            const Estimate part = column_minimum(one, region.lo[l], region.hi[l], m, off);
                            pays += part.value;
                            error += part.error + loose * region.reach(l);
                            size += std::fabs(part.value);
                        }
                        pays -= (error + rounding(2 * d + 8) * size) * (1 + rounding(4 * d + 16));
                        out[y] = std::max({0.0, pays, keep * p_.outside[k * n + y]});
                    }
                }
            }
        }
    }

    // What every row left pays at the cluster's centroid, from below: r^2 (1 - x) - off / x <= (r - sqrt(off))^2.
    void distances(Cluster& c, int from) const {
        constexpr double kShare = 0x1.0p-30;
        const int n = p_.n;
        for (int t = from; t < n; ++t) c.row[t] = 0;
        for (int l = 0; l < p_.d; ++l) {
            const double* y = &p_.points.column[static_cast<size_t>(l) * n];
            const double m = c.m[l];
            for (int t = from; t < n; ++t) c.row[t] += (y[t] - m) * (y[t] - m);
        }
        if (!(c.curve > 0)) return;  // shares nothing
        const double near = 1 - kShare - rounding(2 * p_.d + 8), off = 1.01 * c.off / kShare;
        for (int t = from; t < n; ++t) c.row[t] = std::max(0.0, p_.points.w[t] * (c.row[t] * near - off));
    }

    // The second bound for the rows from t on, where `cost` is the sum of f; without prices or regions.
    double shared_plainly(int t, Cluster* const* set, double cost) {
        const int n = p_.n;
        const double error = p_.points.error;
        for (int k = 0; k < K_; ++k)
            if (!(set[k]->mass > 0)) return 0.0;  // an empty cluster would take every row for nothing
        double best = 0;
        for (int i = 0; i < kThetaCount; ++i) {
            const double keep = 1 - kThetas[i];
            for (int k = 0; k < K_; ++k) {
                const Cluster& c = *set[k];
                const double* row = c.row;
                const double share = keep / (c.mass + keep * p_.points.rest[t]);  // per weight of the cluster
                const double less = share * (c.f + c.error) * (1 + error);
                const double by = share * (1 - error);
                if (k == 0) {
                    for (int y = t; y < n; ++y) least_[y] = by * row[y] - less;
                } else {
                    for (int y = t; y < n; ++y) {
                        const double pays = by * row[y] - less;
                        least_[y] = pays < least_[y] ? pays : least_[y];
                    }
                }
            }
            double sum = kThetas[i] * suffix(t);
            for (int y = t; y < n; ++y) sum += least_[y] > 0 ? p_.points.w[y] * least_[y] : 0.0;
            best = std::max(best, sum * (1 - 2 * error) - p_.points.faint);
            if (cost + best >= cut_) break;
        }
        return best;
    }

    // The same with prices or regions.
    double shared(int t, Cluster* const* set, double cost) {
        const int n = p_.n;
        double best = 0;
        for (int i = 0; i < kThetaCount; ++i) {
            const double keep = 1 - kThetas[i];
            for (int k = 0; k < K_; ++k) {
                const Cluster& c = *set[k];
                const double* far = &p_.outside[static_cast<size_t>(k) * n];
                const double* row = c.row;
                double share = c.curve > 0 ? keep * c.curve / (c.curve + keep * p_.points.rest[t]) : 0.0;
                if (c.mass <= 0 && !opening_.empty() && !coupled_) {
                    row = &opening_[((static_cast<size_t>(i) * n + t) * K_ + k) * n];
                    share = 1;
                    far = row;
                }
                for (int y = t; y < n; ++y) {
                    const double pays = std::max(share * row[y], keep * far[y]);
                    least_[y] = k == 0 ? pays : (pays < least_[y] ? pays : least_[y]);
                }
            }
            double sum = kThetas[i] * suffix(t);
            for (int y = t; y < n; ++y) sum += least_[y];
            best = std::max(best, sum * (1 - 2 * p_.points.error) - p_.points.faint);
            if (cost + best >= cut_) break;
        }
        return best;
    }

    // How the row t may be assigned, and what that must cost at least.
    bool candidate(Candidate& c, int t, Cluster* const* set, const double* mu, int k) {
        c.k = k;
        if (!c.own) c.own = p_.make();
        std::copy(set, set + K_, c.set.begin());
        const int n = p_.n;
        const bool plain = p_.plain(), last = t + 1 == n;
        if (plain) {
            c.own->mass = set[k]->mass, c.own->pairs = set[k]->pairs;
            p_.add(*c.own, t, set[k]->row[t]);
            p_.cost(*c.own, k, 0);
            c.set[k] = c.own;
        } else {
            double away = 0;
            for (int u = first_; u < t; ++u)
                if (path_[u] == k) away += p_.points.w[u] * p_.points.distance(t, u);
            if (coupled_) {
                if (c.copies.empty())
                    for (int j = 0; j < K_; ++j) c.copies.push_back(p_.make());
                for (int j = 0; j < K_; ++j) {
                    p_.copy(*set[j], *c.copies[j]);
                    c.set[j] = c.copies[j];
                }
                c.mu.assign(mu, mu + p_.couplings.size());
                p_.add(*c.set[k], t, away);
                p_.cost(*c.set[k], k, 1);
                p_.ascend(c.set.data(), c.mu.data(), last ? 60 : 2);
            } else {
                p_.copy(*set[k], *c.own);
                p_.add(*c.own, t, away);
                p_.cost(*c.own, k, last ? 100 : 3);
                c.set[k] = c.own;
            }
        }
        const double cost = p_.total(c.set.data());
        c.bound = plus(cost, suffix(t + 1));
        if (c.bound >= cut_) return false;
        if (!last && plain) {
            const double* from = set[k]->row;
            const double* apart = &p_.points.apart[static_cast<size_t>(t) * n];
            const double w = p_.points.w[t];
            for (int y = t + 1; y < n; ++y) c.own->row[y] = from[y] + w * apart[y];
            c.bound = std::max(c.bound, plus(cost, shared_plainly(t + 1, c.set.data(), cost)));
        } else if (!last) {
            if (coupled_)
                for (int j = 0; j < K_; ++j) distances(*c.set[j], t + 1);
            else
                distances(*c.own, t + 1);
            c.bound = std::max(c.bound, plus(cost, shared(t + 1, c.set.data(), cost)));
        }
        return !(c.bound >= cut_);
    }

    void descend(int t, Cluster* const* set, const double* mu, double bound, int used) {
        if (++nodes_ > limit_ || ((nodes_ & 255) == 0 && clock_.over())) stopped_ = true;
        if (stopped_) {
            open_ = std::min(open_, bound);
            return;
        }
        if (t == p_.n) {
            leaf(bound);
            return;
        }
        Candidate* mine = &candidates_[static_cast<size_t>(t - first_) * K_];
        const int tries = p_.plain() ? std::min(used + 1, K_) : K_;
        int order[64], count = 0;
        for (int k = 0; k < tries; ++k) {
            if (!candidate(mine[k], t, set, mu, k)) continue;
            int at = count++;
            while (at > 0 && mine[order[at - 1]].bound > mine[k].bound) {
                order[at] = order[at - 1];
                --at;
            }
            order[at] = k;
        }
        for (int i = 0; i < count; ++i) {
            Candidate& c = mine[order[i]];
            if (c.bound >= cut_) break;
            if (stopped_) {
                open_ = std::min(open_, c.bound);
                continue;
            }
            path_[t] = c.k;
            descend(t + 1, c.set.data(), c.mu.data(), c.bound, std::max(used, c.k + 1));
        }
    }

    // A whole partition. With boxes or cells the multipliers were not driven to their last digits before.
    void leaf(double cost) {
        if (p_.plain() && !(cost < best_.value)) return;
        const Best found = p_.evaluate(path_, first_, true);
        if (!(found.value < best_.value)) return;  // it costs at least that, hence more than the cut
        best_ = found;
        cut_ = std::min(cut_, p_.cut(best_));
    }
};

// W(t) for every t: rows are put back one by one, from the last, and every optimum bounds the next search.
// How many nodes it took.
inline int64_t fill_suffixes(Points& points, int K, const Clock& clock, int64_t limit, double* suffix, Best* whole) {
    const int n = points.n;
    Problem plain(points, K);
    plain.prepare();
    plain.suffix = suffix;
    std::fill(suffix, suffix + n + 1, 0.0);
    Best last(n);
    int64_t left = limit;
    for (int t = 0; t < n; ++t) last.labels[t] = t % K;
    for (int t = n - 1; t >= 0; --t) {
        Best best(n);
        if (n - t <= K) {  // a cluster each
            for (int i = t; i < n; ++i) last.labels[i] = i - t;
            continue;
        }
        for (int k = 0; k < K; ++k) {
            std::vector<int> labels = last.labels;
            labels[t] = k;
            plain.improve(labels, t, best);
        }
        if (t == 0 && whole) plain.try_starts(20, best);
        Search search(plain, t, clock, left, best);
        search.run();
        left -= search.nodes();
        suffix[t] = std::max(search.lower(), suffix[t + 1]);
        last = best;
        if (t == 0 && whole) *whole = best;
        if (!search.complete()) {  // the larger ones are at least this
            for (int u = t - 1; u >= 0; --u) suffix[u] = suffix[t];
            break;
        }
    }
    return limit - left;
}

}  // namespace exact
}  // namespace unpooled
