// The problem of a node: its rows, prices and regions, and what a cluster costs. Lloyd's descent in this setting is
// declared here and defined in search.hpp.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "solve.hpp"
#include "region.hpp"

namespace unpooled {
namespace exact {

class Clock {
public:
    explicit Clock(double seconds) : limited_(seconds < 1e9) {
        if (limited_) {
            using namespace std::chrono;
            end_ = steady_clock::now() + duration_cast<steady_clock::duration>(duration<double>(seconds));
        }
    }
    bool over() const { return limited_ && std::chrono::steady_clock::now() >= end_; }

private:
    bool limited_;
    std::chrono::steady_clock::time_point end_;
};

// Rows in the order of the search, by column: distances to a centroid run along a column.
struct Points {
    int n, d;
    std::vector<double> column;  // (d, n)
    std::vector<double> w;       // (n,)
    std::vector<double> rest;    // (n + 1,) weight of the rows from t on
    double scatter = 0;          // weighted squares about the origin, which is the mean

    Points(int rows, int columns)
        : n(rows), d(columns), column(static_cast<size_t>(rows) * columns), w(rows), rest(rows + 1) {}

    void put(int t, const double* y, double weight) {
        w[t] = weight;
        for (int l = 0; l < d; ++l) {
            column[l * n + t] = y[l];
            scatter += weight * y[l] * y[l];
        }
    }
    void finish() {
        rest[n] = 0;
        for (int t = n - 1; t >= 0; --t) rest[t] = rest[t + 1] + w[t];
    }
    double at(int t, int l) const { return column[l * n + t]; }
};

struct Cluster {
    double mass, sq, f;    // weight, weighted squares, and the lowest cost over its region
    double curve;          // f grows from m by at least this times the squared distance
    double more;           // curvature added by multipliers
    double *s, *m, *mu, *tilt, *row;  // sums; argmin; multipliers of its cell; price added by multipliers; distances
};

struct Best {
    double value = kInf;
    std::vector<int> labels;
    std::vector<double> centers;
    explicit Best(int n) : labels(n, 0) {}
};

struct Coupling {  // (weights of) h = curve (|m_b|^2 - |m_a|^2) + tilt . (m_a - m_b) >= 0
    int a, b;
    double curve;
    std::vector<double> tilt;
};

class Problem {
public:
    const Points& points;
    const int n, d, K;
    const double* suffix = nullptr;  // (n + 1,)
    std::vector<double> q, lo, hi;   // (K, d) about the mean
    std::vector<Region> regions;
    std::vector<Coupling> couplings;
    std::vector<double> empty;    // (K,) the cost of an empty cluster
    std::vector<double> outside;  // (K, n) weighted squared distance to the region
    double tolerance = 0;

    Problem(Points& given, int k) : points(given), n(given.n), d(given.d), K(k), empty(k, 0.0), work_(64) {
        given.finish();
    }

    // No prices and one box for all, around the rows: labels may be swapped at will.
    bool plain() const { return q.empty() && !bounded_; }

    double price(const double* given, const double* mean) {
        q.assign(given, given + K * d);
        double constant = 0;
        for (int i = 0; i < K * d; ++i) constant += q[i] * mean[i % d];
        return constant;
    }

    void enclose(const double* low, const double* high, const double* mean) {
        lo.resize(K * d), hi.resize(K * d), regions.resize(K);
        for (int i = 0; i < K * d; ++i) lo[i] = low[i] - mean[i % d], hi[i] = high[i] - mean[i % d];
        for (int k = 0; k < K; ++k) {
            double width = 0;
            for (int l = 0; l < d; ++l) {
                width = std::max(width, hi[k * d + l] - lo[k * d + l]);
                for (int t = 0; t < n; ++t)
                    bounded_ = bounded_ || points.at(t, l) < lo[k * d + l] || points.at(t, l) > hi[k * d + l];
            }
            regions[k] = Region{&lo[k * d], &hi[k * d], {}, {}, std::max(width, 1e-300)};
        }
    }

    // Centroid k in the Voronoi cell of r[cell[k]]: (r_c - r_o) . m >= (|r_c|^2 - |r_o|^2) / 2 for every other o.
    void cells(const double* r, int references, const int32_t* cell, const double* mean) {
        for (int k = 0; k < K; ++k) {
            for (int o = 0; o < references; ++o) {
                std::vector<double> normal(d);
                double length = 0, offset = 0;
                for (int l = 0; l < d; ++l) {
                    const double own = r[cell[k] * d + l] - mean[l], other = r[o * d + l] - mean[l];
                    normal[l] = own - other;
                    length += normal[l] * normal[l];
                    offset += 0.5 * (own * own - other * other);
                }
                if (!(length > 0)) continue;
                length = std::sqrt(length);
                for (int l = 0; l < d; ++l) regions[k].normal.push_back(normal[l] / length);
                regions[k].offset.push_back(offset / length);
            }
        }
        bounded_ = true;
    }

    // kPair: (r_a - r_b) . (m_a - m_b) >= 0. kPublished: |m_b - r_a|^2 >= |m_a - r_a|^2.
    void couple(const double* r, int symmetry, const double* mean) {
        for (int a = 0; a < K; ++a) {
            for (int b = 0; b < K; ++b) {
                if (a == b || (symmetry == kPair && b < a)) continue;
                Coupling c{a, b, symmetry == kPair ? 0.0 : 1.0, std::vector<double>(d)};
                for (int l = 0; l < d; ++l)
                    c.tilt[l] = symmetry == kPair ? r[a * d + l] - r[b * d + l] : 2 * (r[a * d + l] - mean[l]);
                couplings.push_back(c);
            }
        }
        bounded_ = true;
    }

    void prepare() {
        double size = points.scatter;
        for (int i = 0; i < static_cast<int>(q.size()); ++i)
            size += std::fabs(q[i]) * std::max(std::fabs(lo[i]), std::fabs(hi[i]));
        tolerance = 1e-10 * size;
        if (plain()) return;
        for (const Region& region : regions) halves_ = std::max(halves_, region.halves());
        std::vector<double> zero(d, 0.0), m(d), b(d), mu(64);
        outside.assign(static_cast<size_t>(K) * n, 0.0);
        for (int k = 0; k < K; ++k) {
            if (!feasible(d, regions[k], work_.data())) {
                possible_ = false;
                return;
            }
            empty[k] = region_linear(d, q.empty() ? zero.data() : &q[k * d], regions[k], m.data(), work_.data());
            for (int t = 0; t < n; ++t) {
                double square = 0;
                for (int l = 0; l < d; ++l) {
                    b[l] = -2 * points.at(t, l);
                    square += points.at(t, l) * points.at(t, l);
                }
                std::fill(mu.begin(), mu.end(), 0.0);
                const double away = region_minimum(d, 1.0, b.data(), regions[k], 20, mu.data(), m.data(), work_.data());
                outside[k * n + t] = std::max(0.0, points.w[t] * (away + square) * (1 - 1e-12));
            }
        }
    }

    bool possible() const { return possible_; }

    // ------------------------------------------------------------ clusters

    Cluster* make() const {
        const size_t size = 3 * d + halves_ + n + 1;
        if (pool_.empty() || used_ + size > pool_.back().size()) {
            pool_.emplace_back(std::max<size_t>(size, 1 << 14), 0.0);
            used_ = 0;
        }
        double* at = pool_.back().data() + used_;
        used_ += size;
        clusters_.push_back(Cluster{0, 0, 0, 0, 0, at, at + d, at + 2 * d, at + 2 * d + halves_, at + 3 * d + halves_});
        return &clusters_.back();
    }

    void copy(const Cluster& from, Cluster& to) const {
        to.mass = from.mass, to.sq = from.sq, to.f = from.f, to.curve = from.curve, to.more = from.more;
        std::copy(from.s, from.s + 3 * d + halves_, to.s);  // sums, argmin, multipliers and tilt lie side by side
    }

    void clear(Cluster& c, int k) const {
        c.mass = c.sq = c.more = 0;
        std::fill(c.s, c.s + 3 * d + halves_, 0.0);
        cost(c, k, 100);
    }

    void add(Cluster& c, int t) const {
        const double w = points.w[t];
        c.mass += w;
        for (int l = 0; l < d; ++l) {
            const double y = points.at(t, l);
            c.s[l] += w * y;
            c.sq += w * y * y;
        }
    }

    // The lowest cost of the cluster over its region, or a lower bound of it if the sweeps are few.
    void cost(Cluster& c, int k, int sweeps) const {
        if (plain()) {
            double square = 0;
            const double by = c.mass > 0 ? 1 / c.mass : 0.0;
            for (int l = 0; l < d; ++l) {
                c.m[l] = c.s[l] * by;
                square += c.s[l] * c.m[l];
            }
            c.f = std::max(0.0, c.sq - square);
            c.curve = c.mass;
            return;
        }
        double b[64];
        for (int l = 0; l < d; ++l) b[l] = (q.empty() ? 0.0 : q[k * d + l]) - 2 * c.s[l] + c.tilt[l];
        const double a = c.mass + c.more;
        c.curve = std::max(a, 0.0);
        if (couplings.empty() && a <= 0) {
            c.f = empty[k];
            if (sweeps >= 100) region_linear(d, b, regions[k], c.m, work_.data());
            else box_minimum(d, 0.0, b, regions[k].lo, regions[k].hi, c.m);
        } else if (couplings.empty()) {
            c.f = c.sq + region_minimum(d, a, b, regions[k], sweeps, c.mu, c.m, work_.data());
        } else {
            c.f = c.sq + box_minimum(d, a, b, regions[k].lo, regions[k].hi, c.m);
        }
    }

    // Raise the bound of coupled clusters by ascent on the couplings' multipliers, one at a time.
    void ascend(Cluster* const* set, double* mu, int sweeps) const {
        for (int sweep = 0; sweep < sweeps; ++sweep) {
            double moved = 0;
            for (size_t j = 0; j < couplings.size(); ++j) {
                const Coupling& c = couplings[j];
                Cluster &A = *set[c.a], &B = *set[c.b];
                if (slack(c, A, B) >= 0 && mu[j] == 0) continue;
                const double before = mu[j], value = A.f + B.f;
                double below = 0, above = -1, at = before, step = 1 + 0.5 * (A.mass + B.mass);
                for (int i = 0; i < 50; ++i) {
                    const double h = slack(c, A, B);
                    if (h >= 0) above = at; else below = at;
                    if (h >= 0 && at == 0) break;
                    double next;
                    if (above < 0) next = at + (step *= 2);
                    else if (below == 0 && above == at && i == 0) next = 0.5 * at > 1e-9 ? 0.5 * at : 0.0;
                    else next = 0.5 * (below + above);
                    if (above >= 0 && above - below <= 1e-12 * (1 + above)) break;
                    if (next > 1e9) break;
                    shift(c, A, B, next - at);
                    at = next;
                }
                if (A.f + B.f < value) {  // rounding, or a jump of the nonconvex case: keep what was better
                    shift(c, A, B, before - at);
                    at = before;
                }
                mu[j] = at;
                moved = std::max(moved, std::fabs(at - before) / (1 + at));
            }
            if (moved <= 1e-10) break;
        }
    }

    // ------------------------------------------------------------ descent

    // Lloyd in this setting from labels of the rows t0.., and whether it beats the best so far.
    void improve(std::vector<int>& labels, int t0, Best& best) const;
    void try_starts(int starts, Best& best) const;
    void settle(Best& best) const;
    double evaluate(const std::vector<int>& labels, int t0, std::vector<double>& centers) const;

    double distance(int t, const double* m) const {
        double away = 0;
        for (int l = 0; l < d; ++l) away += (points.at(t, l) - m[l]) * (points.at(t, l) - m[l]);
        return away;
    }

private:
    bool bounded_ = false, possible_ = true;
    int halves_ = 0;  // most half-spaces of any region
    mutable std::vector<double> work_;
    mutable std::deque<std::vector<double>> pool_;
    mutable std::deque<Cluster> clusters_;
    mutable size_t used_ = 0;

    double slack(const Coupling& c, const Cluster& A, const Cluster& B) const {
        double h = 0;
        for (int l = 0; l < d; ++l)
            h += c.curve * (B.m[l] * B.m[l] - A.m[l] * A.m[l]) + c.tilt[l] * (A.m[l] - B.m[l]);
        return h;
    }

    void shift(const Coupling& c, Cluster& A, Cluster& B, double by) const {
        A.more += by * c.curve, B.more -= by * c.curve;
        for (int l = 0; l < d; ++l) A.tilt[l] -= by * c.tilt[l], B.tilt[l] += by * c.tilt[l];
        cost(A, c.a, 1);
        cost(B, c.b, 1);
    }
};

}  // namespace exact
}  // namespace unpooled
