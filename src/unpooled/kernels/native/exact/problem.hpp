// The problem of a node: its rows, prices and regions, and what a cluster costs. Lloyd's descent in this setting is
// declared here and defined in descent.hpp.
//
// The scatter of a cluster is sum_{i<j} w_i w_j |y_i - y_j|^2 / sum_i w_i. A difference of two rows has a relative error
// of one rounding, however far the rows lie from the origin or from other rows, and nothing cancels in the sum. So a
// scatter has a small relative error, and bounds of tight groups lose nothing to groups far away.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "clock.hpp"
#include "region.hpp"
#include "solve.hpp"

namespace unpooled {
namespace exact {

constexpr double kTolerance = 4e-10;  // of the optimum: how far below the best a bound may lie and still end a branch

// Rows in the order of the search, about a point near their mean, by column: distances to a centroid run along a column.
struct Points {
    int n, d;
    std::vector<double> column;  // (d, n)
    std::vector<double> w;       // (n,)
    std::vector<double> rest;    // (n + 1,) weight of the rows from t on
    std::vector<double> apart;   // (n, n) squared distances between rows
    std::vector<double> blur;    // (d,) a mean of rows is known to this
    double error;                // relative, of a scatter; two roundings a row for each of three sums
    double faint = 0;            // what was too small for float64 adds up to at most this

    Points(int rows, int columns)
        : n(rows), d(columns), column(static_cast<size_t>(rows) * columns), w(rows), rest(rows + 1),
          apart(static_cast<size_t>(rows) * rows), blur(columns, 0.0), error(rounding(6.0 * rows + 2 * columns + 40)) {}

    // The row t: about the origin, and as it was given.
    void put(int t, const double* y, double weight) {
        w[t] = weight;
        for (int l = 0; l < d; ++l) {
            column[l * n + t] = y[l];
            blur[l] = std::max(blur[l], error * std::fabs(y[l]));
        }
        if (weight < 0x1.0p-80) faint = kFloor;
    }
    void measure(int t, int u, const double* a, const double* b) {
        double square = 0;
        bool equal = true;
        for (int l = 0; l < d; ++l) {
            const double difference = a[l] - b[l];
            equal = equal && difference == 0;
            square += difference * difference;
        }
        if (!equal && square < kFaint) square = 0, faint = kFloor;
        apart[static_cast<size_t>(t) * n + u] = apart[static_cast<size_t>(u) * n + t] = square;
    }
    void finish() {
        rest[n] = 0;
        for (int t = n - 1; t >= 0; --t) rest[t] = rest[t + 1] + w[t];
    }
    double at(int t, int l) const { return column[l * n + t]; }
    double distance(int t, int u) const { return apart[static_cast<size_t>(t) * n + u]; }
};

struct Cluster {
    double mass, pairs;    // weight, and the sum over pairs of rows of w_i w_j |y_i - y_j|^2
    double f, error;       // not above its lowest cost over its region; f + error is not below it
    double curve;          // the cost grows from the true argmin by at least this times the squared distance
    double off;            // the squared distance of m from the true argmin is at most this
    double more;           // curvature added by multipliers
    double *s, *m, *mu, *tilt;  // sums; argmin; multipliers of its cell; price added by multipliers
    double* row;  // (n,) of every row left: what it pays at m; without prices sum over own rows w_i |y_i - y|^2
};

struct Best {
    double value = kInf;   // not above the cost of these labels
    double upper = kInf;   // not below it
    double spread = kInf;  // its squared distances
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
    std::vector<double> q, lo, hi;   // (K, d) about the origin
    std::vector<Region> regions;
    std::vector<Coupling> couplings;
    std::vector<double> empty;    // (K,) the cost of an empty cluster
    std::vector<double> outside;  // (K, n) weighted squared distance to the region

    Problem(Points& given, int k) : points(given), n(given.n), d(given.d), K(k), empty(k, 0.0), work_(64) {
        given.finish();
    }

    // No prices and one box for all, around the rows: labels may be swapped at will.
    bool plain() const { return q.empty() && !bounded_; }

    // Boxes about the origin, rounded outwards; `around` says that every one holds all rows.
    void enclose(const double* low, const double* high, const double* origin, bool around) {
        lo.resize(K * d), hi.resize(K * d), regions.resize(K);
        const double out = rounding(2);
        for (int i = 0; i < K * d; ++i) {
            lo[i] = low[i] - origin[i % d], hi[i] = high[i] - origin[i % d];
            if (lo[i] <= hi[i]) lo[i] -= out * std::fabs(lo[i]) + kTiny, hi[i] += out * std::fabs(hi[i]) + kTiny;
        }
        for (int k = 0; k < K; ++k) {
            double width = 0;
            for (int l = 0; l < d; ++l) width = std::max(width, hi[k * d + l] - lo[k * d + l]);
            regions[k] = Region{&lo[k * d], &hi[k * d], {}, {}, std::max(width, 1e-300)};
        }
        bounded_ = !around;
    }

    // Centroid k in the Voronoi cell of r[cell[k]]: (r_c - r_o) . (m - (r_c + r_o) / 2) >= 0 for every other o. The
    // offset is lowered, so that no point of the cell is lost to rounding.
    void cells(const double* r, int references, const int32_t* cell, const double* origin) {
        for (int k = 0; k < K; ++k) {
            for (int o = 0; o < references; ++o) {
                std::vector<double> normal(d);
                double length = 0, offset = 0, size = 0;
                for (int l = 0; l < d; ++l) {
                    normal[l] = r[cell[k] * d + l] - r[o * d + l];
                    length = std::max(length, std::fabs(normal[l]));
                }
                if (!(length > 0)) continue;
                double square = 0;
                for (int l = 0; l < d; ++l) square += (normal[l] / length) * (normal[l] / length);
                length *= std::sqrt(square);
                for (int l = 0; l < d; ++l) {
                    const double own = r[cell[k] * d + l] - origin[l], other = r[o * d + l] - origin[l];
                    normal[l] /= length;
                    offset += normal[l] * (0.5 * own + 0.5 * other);
                    size += std::fabs(normal[l]) * (std::fabs(own) + std::fabs(other) + regions[k].reach(l));
                    regions[k].normal.push_back(normal[l]);
                }
                regions[k].offset.push_back(offset - rounding(2 * d + 12) * size - kTiny);
            }
        }
        bounded_ = true;
    }

    // kPair: (r_a - r_b) . (m_a - m_b) >= 0. kPublished: |m_b - r_a|^2 >= |m_a - r_a|^2.
    void couple(const double* r, int symmetry, const double* origin) {
        for (int a = 0; a < K; ++a) {
            for (int b = 0; b < K; ++b) {
                if (a == b || (symmetry == kPair && b < a)) continue;
                Coupling c{a, b, symmetry == kPair ? 0.0 : 1.0, std::vector<double>(d)};
                for (int l = 0; l < d; ++l)
                    c.tilt[l] = symmetry == kPair ? r[a * d + l] - r[b * d + l] : 2 * (r[a * d + l] - origin[l]);
                couplings.push_back(c);
            }
        }
        bounded_ = true;
    }

    void prepare() {
        if (plain()) return;
        for (const Region& region : regions) halves_ = std::max(halves_, region.halves());
        std::vector<double> zero(d, 0.0), y(d), m(d), mu(64);
        outside.assign(static_cast<size_t>(K) * n, 0.0);
        for (int k = 0; k < K; ++k) {
            if (!feasible(d, regions[k], work_.data())) {
                possible_ = false;
                return;
            }
            empty[k] = region_linear(d, q.empty() ? zero.data() : &q[k * d], regions[k], m.data(), work_.data());
            for (int t = 0; t < n; ++t) {
                for (int l = 0; l < d; ++l) y[l] = points.at(t, l);
                outside[k * n + t] = points.w[t] * distance_below(d, y.data(), points.blur.data(), regions[k], 20,
                                                                  mu.data(), m.data(), work_.data());
            }
        }
    }

    bool possible() const { return possible_; }

    // Costs from here on are not worth a search: nearer to the best than the tolerance.
    double cut(const Best& best) const {
        if (!(best.value < kInf)) return kInf;
        if (plain()) return best.value * (1 - kTolerance);
        const double cut = best.value - kTolerance * best.spread - 4 * (best.upper - best.value);
        return std::isfinite(cut) ? cut : -kInf;  // beyond float64: nothing is claimed, and nothing is searched
    }

    // ------------------------------------------------------------ clusters

    Cluster* make() const {
        const size_t size = 3 * d + halves_ + n + 1;
        if (pool_.empty() || used_ + size > pool_.back().size()) {
            pool_.emplace_back(std::max<size_t>(size, 1 << 14), 0.0);
            used_ = 0;
        }
        double* at = pool_.back().data() + used_;
        used_ += size;
        clusters_.push_back(at_rest(at));
        clusters_.back().row = at + 3 * d + halves_;
        return &clusters_.back();
    }

    void copy(const Cluster& from, Cluster& to) const {
        to.mass = from.mass, to.pairs = from.pairs, to.f = from.f, to.error = from.error;
        to.curve = from.curve, to.off = from.off, to.more = from.more;
        std::copy(from.s, from.s + 3 * d + halves_, to.s);  // sums, argmin, multipliers and tilt lie side by side
    }

    void clear(Cluster& c, int k) const {
        c.mass = c.pairs = c.more = 0;
        std::fill(c.s, c.s + 3 * d + halves_, 0.0);
        std::fill(c.row, c.row + n, 0.0);
        cost(c, k, 100);
    }

    // The row t joins; `distances` is the weighted sum of its squared distances from the cluster's rows.
    void add(Cluster& c, int t, double distances) const {
        const double w = points.w[t];
        c.mass += w;
        c.pairs += w * distances;
        if (plain()) return;
        for (int l = 0; l < d; ++l) c.s[l] += w * points.at(t, l);
    }

    // The lowest cost of the cluster over its region, from below; farther below if the sweeps are few.
    void cost(Cluster& c, int k, int sweeps) const {
        const double scatter = c.mass > 0 ? c.pairs / c.mass : 0.0;
        c.curve = c.mass * (1 - points.error);
        c.f = std::max(0.0, scatter * (1 - points.error) - points.faint);
        c.error = 3 * points.error * scatter + 2 * points.faint;
        if (plain()) return;
        const double a = c.mass + c.more;
        const double* price = q.empty() ? nullptr : &q[k * d];
        if (couplings.empty() && a <= 0) {
            c.f = empty[k], c.error = rounding(8) * std::fabs(empty[k]);
            if (sweeps >= 100) region_linear(d, price ? price : zeros(), regions[k], c.m, work_.data());
            else for (int l = 0; l < d; ++l) c.m[l] = (price ? price[l] : 0.0) >= 0 ? regions[k].lo[l] : regions[k].hi[l];
            return;
        }
        double b[64], mean[64], p[64];
        for (int l = 0; l < d; ++l) {
            mean[l] = c.mass > 0 ? c.s[l] / c.mass : 0.0;
            p[l] = (price ? price[l] : 0.0) + c.tilt[l];
            b[l] = p[l] - 2 * c.s[l];
        }
        if (couplings.empty() && regions[k].halves()) ascend_walls(d, a, b, regions[k], sweeps, c.mu, work_.data());
        const Parabola shape{c.mass, c.more, 0, 0, 0, 0, points.error};
        const Estimate rest = region_minimum(d, shape, mean, points.blur.data(), p, regions[k], c.mu, c.m, c.off);
        c.curve = std::max(0.0, a - points.error * (c.mass + std::fabs(c.more)));
        const double doubt = rest.error + rounding(4) * (c.f + std::fabs(rest.value));
        c.f += rest.value - doubt;
        c.error += 2 * doubt;
        if (!(c.f > -kInf)) c.f = -kInf;  // beyond float64: nothing is claimed
    }

    // The sum over clusters, rounded down.
    double total(Cluster* const* set) const {
        double sum = 0, size = 0;
        for (int k = 0; k < K; ++k) {
            sum += set[k]->f;
            size += std::fabs(set[k]->f);
        }
        return sum - rounding(K + 1) * size;
    }

    // Raise the bound of coupled clusters by ascent on the couplings' multipliers, one at a time.
    void ascend(Cluster* const* set, double* mu, int sweeps) const;

    // ------------------------------------------------------------ descent

    // Lloyd in this setting from labels of the rows t0.., and whether it beats the best so far.
    void improve(std::vector<int>& labels, int t0, Best& best) const;
    void try_starts(int starts, Best& best) const;
    // The best with these labels, and its centres. Bounds hold only if `strict`, which takes n^2 steps.
    Best evaluate(const std::vector<int>& labels, int t0, bool strict) const;

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

    static const double* zeros() {
        static const double none[64] = {0};
        return none;
    }
    Cluster at_rest(double* at) const {
        return Cluster{0, 0, 0, 0, 0, 0, 0, at, at + d, at + 2 * d, at + 2 * d + halves_, nullptr};
    }
    double slack(const Coupling& c, const Cluster& A, const Cluster& B) const;
    void shift(const Coupling& c, Cluster& A, Cluster& B, double by) const;
    void place(Cluster& c, int k) const;
    void rebuild(Cluster* const* set, const double* mu) const;
};

}  // namespace exact
}  // namespace unpooled
