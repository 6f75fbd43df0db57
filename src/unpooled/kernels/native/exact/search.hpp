// The search: depth-first branch and bound over the rows of a Problem, the suffix bounds that feed it, and the descent
// that gives it a good start.
#pragma once
#include <memory>

#include "problem.hpp"

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
// its future rows share as well.
class Search {
public:
    Search(const Problem& problem, int first, const Clock& clock, int64_t limit, Best& best)
        : p_(problem), first_(first), clock_(clock), limit_(limit), best_(best), K_(problem.K),
          cut_(best.value - problem.tolerance), least_(problem.n) {
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
        double total = 0;
        for (int k = 0; k < K_; ++k) {
            set[k] = p_.make();
            p_.clear(*set[k], k);
            total += set[k]->f;
            distances(*set[k], first_);
        }
        std::vector<double> mu(p_.couplings.size(), 0.0);
        path_.assign(p_.n, 0);
        descend(first_, set.data(), mu.data(), total, total + suffix(first_), 0);
    }

    bool complete() const { return !stopped_; }
    int64_t nodes() const { return nodes_; }
    double lower() const { return std::min(open_, best_.value - p_.tolerance); }

private:
    struct Candidate {
        std::vector<Cluster*> set;
        Cluster* own;  // the cluster that takes the row
        std::vector<Cluster*> copies;
        std::vector<double> mu;
        double cost, bound;
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

    void share_prices() {
        const int n = p_.n, d = p_.d;
        opening_.assign(static_cast<size_t>(kThetaCount) * n * K_ * n, 0.0);
        double b[64], m[64];
        for (int i = 0; i < kThetaCount; ++i) {
            const double keep = 1 - kThetas[i];
            for (int t = first_; t < n; ++t) {  // the rows t.. are left
                for (int k = 0; k < K_; ++k) {
                    double* out = &opening_[((static_cast<size_t>(i) * n + t) * K_ + k) * n];
                    for (int y = t; y < n; ++y) {
                        const double share = p_.points.w[y] / p_.points.rest[t], a = keep * p_.points.w[y];
                        double square = 0;
                        for (int l = 0; l < d; ++l) {
                            b[l] = share * p_.q[k * d + l] - 2 * a * p_.points.at(y, l);
                            square += a * p_.points.at(y, l) * p_.points.at(y, l);
                        }
                        const double pays = box_minimum(d, a, b, p_.regions[k].lo, p_.regions[k].hi, m) + square -
                                            share * p_.empty[k];
                        out[y] = std::max({0.0, pays, keep * p_.outside[k * n + y]});
                    }
                }
            }
        }
    }

    void distances(Cluster& c, int from) const {
        const int n = p_.n;
        for (int t = from; t < n; ++t) c.row[t] = 0;
        for (int l = 0; l < p_.d; ++l) {
            const double* y = &p_.points.column[static_cast<size_t>(l) * n];
            const double m = c.m[l];
            for (int t = from; t < n; ++t) c.row[t] += (y[t] - m) * (y[t] - m);
        }
        for (int t = from; t < n; ++t) c.row[t] *= p_.points.w[t];
    }

    // The second bound for the rows from t on, where `cost` is the sum of f.
    double shared(int t, Cluster* const* set, double cost) {
        const int n = p_.n;
        double best = 0;
        for (int i = 0; i < kThetaCount; ++i) {
            const double keep = 1 - kThetas[i];
            bool first = true;
            for (int k = 0; k < K_; ++k) {
                const Cluster& c = *set[k];
                const double* far = p_.outside.empty() ? nullptr : &p_.outside[static_cast<size_t>(k) * n];
                const double* row = c.row;
                double share = c.curve > 0 ? keep * c.curve / (c.curve + keep * p_.points.rest[t]) : 0.0;
                if (c.mass <= 0 && !opening_.empty() && !coupled_) {
                    row = &opening_[((static_cast<size_t>(i) * n + t) * K_ + k) * n];
                    share = 1;
                    far = nullptr;
                } else if (share == 0 && !far) {
                    return best;  // an empty cluster would take every row for nothing
                }
                if (far) {
                    for (int y = t; y < n; ++y) {
                        const double pays = std::max(share * row[y], keep * far[y]);
                        least_[y] = first ? pays : (pays < least_[y] ? pays : least_[y]);
                    }
                } else if (first) {
                    for (int y = t; y < n; ++y) least_[y] = share * row[y];
                } else {
                    for (int y = t; y < n; ++y) {
                        const double pays = share * row[y];
                        least_[y] = pays < least_[y] ? pays : least_[y];
                    }
                }
                first = false;
            }
            double sum = kThetas[i] * suffix(t);
            for (int y = t; y < n; ++y) sum += least_[y];
            best = std::max(best, sum);
            if (cost + best >= cut_) break;
        }
        return best;
    }

    // How the row t may be assigned: what it costs and what it must cost at least.
    bool candidate(Candidate& c, int t, Cluster* const* set, const double* mu, double cost, int k) {
        c.k = k;
        if (!c.own) c.own = p_.make();
        std::copy(set, set + K_, c.set.begin());
        if (coupled_) {
            if (c.copies.empty())
                for (int j = 0; j < K_; ++j) c.copies.push_back(p_.make());
            for (int j = 0; j < K_; ++j) {
                p_.copy(*set[j], *c.copies[j]);
                c.set[j] = c.copies[j];
            }
            c.mu.assign(mu, mu + p_.couplings.size());
            p_.add(*c.set[k], t);
            p_.cost(*c.set[k], k, 1);
            p_.ascend(c.set.data(), c.mu.data(), t + 1 == p_.n ? 60 : 2);
            c.cost = 0;
            for (int j = 0; j < K_; ++j) c.cost += c.set[j]->f;
        } else {
            p_.copy(*set[k], *c.own);
            p_.add(*c.own, t);
            p_.cost(*c.own, k, t + 1 == p_.n ? 100 : 3);
            c.set[k] = c.own;
            c.cost = cost - set[k]->f + c.own->f;
        }
        c.bound = c.cost + suffix(t + 1);
        if (c.bound >= cut_) return false;
        if (t + 1 < p_.n) {
            if (coupled_)
                for (int j = 0; j < K_; ++j) distances(*c.set[j], t + 1);
            else
                distances(*c.own, t + 1);
            c.bound = std::max(c.bound, c.cost + shared(t + 1, c.set.data(), c.cost));
        }
        return c.bound < cut_;
    }

    void descend(int t, Cluster* const* set, const double* mu, double cost, double bound, int used) {
        if (++nodes_ > limit_ || ((nodes_ & 255) == 0 && clock_.over())) stopped_ = true;
        if (stopped_) {
            open_ = std::min(open_, bound);
            return;
        }
        if (t == p_.n) {
            leaf(cost);
            return;
        }
        Candidate* mine = &candidates_[static_cast<size_t>(t - first_) * K_];
        const int tries = p_.plain() ? std::min(used + 1, K_) : K_;
        int order[64], count = 0;
        for (int k = 0; k < tries; ++k) {
            if (!candidate(mine[k], t, set, mu, cost, k)) continue;
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
            descend(t + 1, c.set.data(), c.mu.data(), c.cost, c.bound, std::max(used, c.k + 1));
        }
    }

    void leaf(double cost) {
        std::vector<double> centers;
        // with boxes or cells the multipliers were not driven to their last digits
        if (!coupled_ && !p_.plain()) cost = p_.evaluate(path_, first_, centers);
        if (cost < best_.value) {
            best_.value = cost;
            best_.labels = path_;
            cut_ = cost - p_.tolerance;
        }
    }
};

// W(t) for every t: rows are put back one by one, from the last, and every optimum bounds the next search.
inline void fill_suffixes(Points& points, int K, const Clock& clock, int64_t limit, double* suffix, Best* whole) {
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
}

// ---------------------------------------------------------------- descent

inline double Problem::evaluate(const std::vector<int>& labels, int t0, std::vector<double>& centers) const {
    std::vector<Cluster*> set(K);
    std::deque<std::vector<double>> memory;
    std::deque<Cluster> clusters;
    for (int k = 0; k < K; ++k) {
        memory.emplace_back(3 * d + halves_ + 1, 0.0);
        double* at = memory.back().data();
        clusters.push_back(Cluster{0, 0, 0, 0, 0, at, at + d, at + 2 * d, at + 2 * d + halves_, nullptr});
        set[k] = &clusters.back();
    }
    for (int t = t0; t < n; ++t) add(*set[labels[t]], t);
    for (int k = 0; k < K; ++k) cost(*set[k], k, 200);
    if (!couplings.empty()) {
        std::vector<double> mu(couplings.size(), 0.0);
        ascend(set.data(), mu.data(), 60);
    }
    double value = 0;
    centers.resize(static_cast<size_t>(K) * d);
    for (int k = 0; k < K; ++k) {
        value += set[k]->f;
        std::copy(set[k]->m, set[k]->m + d, &centers[static_cast<size_t>(k) * d]);
    }
    return value;
}

inline void Problem::improve(std::vector<int>& labels, int t0, Best& best) const {
    std::vector<double> centers;
    double value = evaluate(labels, t0, centers);
    for (int step = 0; step < 100; ++step) {
        std::vector<int> next = labels;
        for (int t = t0; t < n; ++t) {
            double near = distance(t, &centers[static_cast<size_t>(next[t]) * d]);
            for (int k = 0; k < K; ++k) {
                const double away = distance(t, &centers[static_cast<size_t>(k) * d]);
                if (away < near) near = away, next[t] = k;
            }
        }
        if (next == labels) break;
        std::vector<double> moved;
        const double lower = evaluate(next, t0, moved);
        if (!(lower < value)) break;
        value = lower, labels = next, centers = moved;
    }
    if (value < best.value) {
        best.value = value;
        best.labels = labels;
        best.centers = centers;
    }
}

// Lloyd from k-means++ draws; the generator is fixed, so the same task takes the same way.
inline void Problem::try_starts(int starts, Best& best) const {
    uint64_t state = 0x9E3779B97F4A7C15u;
    auto uniform = [&state] {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return static_cast<double>(state >> 11) * 0x1.0p-53;
    };
    std::vector<double> near(n), centers(static_cast<size_t>(K) * d);
    for (int s = 0; s < starts; ++s) {
        std::fill(near.begin(), near.end(), kInf);
        for (int k = 0; k < K; ++k) {
            int pick = static_cast<int>(uniform() * n);
            if (k > 0) {
                double sum = 0;
                for (int t = 0; t < n; ++t) sum += points.w[t] * near[t];
                double at = uniform() * sum;
                for (pick = 0; pick < n - 1 && (at -= points.w[pick] * near[pick]) > 0; ++pick) {}
            }
            for (int l = 0; l < d; ++l) centers[k * d + l] = points.at(pick, l);
            for (int t = 0; t < n; ++t) near[t] = std::min(near[t], distance(t, &centers[k * d]));
        }
        std::vector<int> labels(n), as(K, -1);
        if (!plain()) {  // which seed becomes which cluster: the nearest still free to each region
            std::vector<char> taken(K, 0);
            for (int k = 0; k < K; ++k) {
                double least = kInf;
                double b[64], mu[64], m[64];
                for (int c = 0; c < K; ++c) {
                    if (taken[c]) continue;
                    double away = 0;
                    for (int l = 0; l < d; ++l) {
                        b[l] = -2 * centers[c * d + l];
                        away += centers[c * d + l] * centers[c * d + l];
                    }
                    if (!q.empty())
                        for (int l = 0; l < d; ++l) b[l] += q[k * d + l] / std::max(1.0, points.rest[0] / K);
                    std::fill(mu, mu + 64, 0.0);
                    away += region_minimum(d, 1.0, b, regions[k], 10, mu, m, work_.data());
                    if (away < least) least = away, as[k] = c;
                }
                taken[as[k]] = 1;
            }
        } else {
            for (int k = 0; k < K; ++k) as[k] = k;
        }
        for (int t = 0; t < n; ++t) {
            double least = kInf;
            for (int k = 0; k < K; ++k) {
                const double away = distance(t, &centers[as[k] * d]);
                if (away < least) least = away, labels[t] = k;
            }
        }
        improve(labels, 0, best);
    }
}

// The centres that belong to the best labels.
inline void Problem::settle(Best& best) const { evaluate(best.labels, 0, best.centers); }

}  // namespace exact
}  // namespace unpooled
