// The semidefinite programme of semidefinite.hpp, solved roughly by alternating directions. Nothing here needs to be exact:
// a bound holds for any multipliers.
//
// All is divided by the roots of weights, r: Z r = r, trace Z = k. In these units a step is
//   y: least squares;  S: the part of C - A'y - B + T - Z / rho above zero;  B: the positive part of what is left;
//   t: coordinate by coordinate;  Z += 1.3 rho (A'y + S + B - T - C).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "clock.hpp"
#include "spectrum.hpp"

namespace unpooled {
namespace exact {

struct Triangle {  // Z_ij + Z_iq <= Z_ii + Z_jq
    int i, j, q;
    double t;
};

struct Multipliers {
    std::vector<double> b, B;  // (n,) budgets; (n, n) times the powers of two, its lower triangle
    std::vector<Triangle> triangles;
};

class Directions {
public:
    int64_t work = 0;  // steps of arithmetic so far

    Directions(int n, int k, const std::vector<double>& D, const std::vector<double>& s, const std::vector<double>& ww,
               const int32_t* labels)
        : n_(n), k_(k), s_(s), q_(n), r_(n), C_(D), S_(D.size(), 0.0), B_(D.size(), 0.0), T_(D.size(), 0.0), Z_(D.size(), 0.0) {
        double mean = 0;
        for (int i = 0; i < n; ++i) q_[i] = std::sqrt(ww[i]), r_[i] = q_[i] / s[i], mean += r_[i] * r_[i] / n;
        unit_ = std::sqrt(mean);
        for (double& r : r_) r /= unit_;
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j) scale_ = std::max(scale_, C_[at(i, j)] /= q_[i] * q_[j]);
        for (double& c : C_) c /= scale_;
        std::vector<double> mass(k, 0.0);
        for (int i = 0; i < n; ++i) mass[labels[i]] += r_[i] * r_[i];
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j)
                if (labels[i] == labels[j]) Z_[at(i, j)] = r_[i] * r_[j] / mass[labels[i]];
    }

    void iterate(int steps, int64_t most, const Clock& clock) {
        const int n = n_;
        std::vector<double> Q(C_.size()), W(C_.size()), y(n), p(n);
        for (int step = 0; step < steps && work < most && !clock.over(); ++step) {
            work += Spectrum::work(n) + 20LL * n * n + 30LL * static_cast<int64_t>(triangles_.size());
            double primal = 0, dual = 0;
            const double tau = least_squares(p, y, primal);
            for (int i = 0; i < n; ++i)
                for (int j = 0; j < n; ++j) {
                    const size_t a = at(i, j);
                    const double base = C_[a] - 0.5 * (y[i] * r_[j] + r_[i] * y[j]) - (i == j ? tau : 0.0) - Z_[a] / rho_;
                    Q[a] = base;
                    S_[a] = W[a] = base + T_[a] - B_[a];
                }
            const Spectrum below(W, n);
            for (size_t m = 0; m < below.values.size(); ++m) {
                const double* v = &below.vectors[m * n];
                for (int i = 0; i < n; ++i) {
                    const double by = below.values[m] * v[i];
                    double* row = &S_[at(i, 0)];
                    for (int j = 0; j < n; ++j) row[j] -= by * v[j];
                }
            }
            work += 1LL * n * n * static_cast<int64_t>(below.values.size());
            for (size_t a = 0; a < Q.size(); ++a) B_[a] = std::max(0.0, Q[a] + T_[a] - S_[a]);
            if (!triangles_.empty()) {
                for (size_t a = 0; a < Q.size(); ++a) W[a] = S_[a] + B_[a] - T_[a] - Q[a];  // what the t make smaller
                for (int sweep = 0; sweep < 2; ++sweep)
                    for (Edge& c : triangles_) move(c, W);
            }
            for (size_t a = 0; a < Q.size(); ++a) {
                const double left = S_[a] + B_[a] - T_[a] - Q[a] - Z_[a] / rho_;
                dual += left * left;
                Z_[a] += 1.3 * rho_ * left;
            }
            if (++steps_ % 25 == 0) {
                dual = std::sqrt(dual) / n;
                const double by = steps_ % 50 == 0 ? 1.3 : 1.15;
                if (primal > 5 * dual) rho_ /= by;
                else if (dual > 5 * primal) rho_ *= by;
            }
        }
        y_ = y;
    }

    Multipliers multipliers() const {
        Multipliers m;
        for (int i = 0; i < n_; ++i) m.b.push_back(y_[i] * scale_ * q_[i] / (s_[i] * unit_));
        m.B.assign(B_.size(), 0.0);
        for (int i = 0; i < n_; ++i)
            for (int j = 0; j <= i; ++j) m.B[at(i, j)] = B_[at(i, j)] * q_[i] * q_[j] * scale_;
        for (const Edge& c : triangles_)
            if (c.t > 0) m.triangles.push_back({c.i, c.j, c.q, c.t * c.unit * unit_ * unit_ * scale_});
        return m;
    }

    // Drop inequalities that do not count and add those that are violated most; were any added?
    bool add_triangles() {
        std::vector<Edge> kept;
        std::set<std::tuple<int, int, int>> have;
        for (const Edge& c : triangles_)
            if (c.t > 1e-10) kept.push_back(c), have.emplace(c.i, c.j, c.q);
            else change(c, -c.t, T_, 1.0);
        triangles_ = std::move(kept);
        work += 1LL * n_ * n_ * n_;
        std::vector<double> plain(Z_.size());
        for (int i = 0; i < n_; ++i)
            for (int j = 0; j < n_; ++j) plain[at(i, j)] = Z_[at(i, j)] / (r_[i] * r_[j]);
        std::vector<std::pair<double, Edge>> found;
        for (int i = 0; i < n_; ++i)
            for (int j = 0; j < n_; ++j) {
                if (j == i || !(plain[at(i, j)] > 0)) continue;
                const double* row = &plain[at(i, 0)];
                const double* other = &plain[at(j, 0)];
                const double part = row[j] - row[i];
                for (int q = 0; q < j; ++q) {
                    const double over = part + row[q] - other[q];
                    if (over > 0.01 / n_ && q != i) found.emplace_back(over, edge(i, j, q));
                }
                if (found.size() > 400000) keep_most(found, 5 * n_);
            }
        keep_most(found, 5 * n_ + n_ / 2);
        bool more = false;
        for (const auto& f : found)
            if (have.emplace(f.second.i, f.second.j, f.second.q).second) triangles_.push_back(f.second), more = true;
        return more;
    }

private:
    struct Edge {
        int i, j, q;
        double t, unit;          // the inequality is taken times the unit
        double ij, iq, jq, ii;   // its coefficients
        double square;           // of their norm
    };

    const int n_, k_;
    const std::vector<double>& s_;
    std::vector<double> q_, r_, C_, S_, B_, T_, Z_, y_;
    std::vector<Edge> triangles_;
    double scale_ = 1e-300, unit_ = 1, rho_ = 0.02;
    int64_t steps_ = 0;

    size_t at(int i, int j) const { return static_cast<size_t>(i) * n_ + j; }

    // y and the multiplier of the trace that fit S + B - T best.
    double least_squares(std::vector<double>& p, std::vector<double>& y, double& primal) const {
        const int n = n_;
        double trace = 0, along = 0, norm = 0, whole = 0;
        primal = 0;
        for (int i = 0; i < n; ++i) {
            double sum = 0, off = 0;
            for (int j = 0; j < n; ++j) {
                const size_t a = at(i, j);
                sum += (S_[a] + B_[a] - T_[a] - C_[a]) * r_[j];
                off += Z_[a] * r_[j];
            }
            const size_t a = at(i, i);
            trace += S_[a] + B_[a] - T_[a] - C_[a];
            whole += Z_[a];
            primal += (off - r_[i]) * (off - r_[i]);
            p[i] = (r_[i] - off) / rho_ - sum;
            along += p[i] * r_[i];
            norm += r_[i] * r_[i];
        }
        primal = std::sqrt(primal) / std::sqrt(norm);
        const double q = (k_ - whole) / rho_ - trace;
        const double tau = (q - along / norm) / (n - 1), sum = along / norm - tau;
        for (int i = 0; i < n; ++i) y[i] = 2 / norm * (p[i] - r_[i] * (0.5 * sum + tau));
        return tau;
    }

    Edge edge(int i, int j, int q) const {
        Edge c{i, j, q, 0, 1, 0, 0, 0, 0, 0};
        const double least = std::min({r_[i], r_[j], r_[q]});
        c.unit = least * least;
        c.ij = 0.5 * c.unit / (r_[i] * r_[j]), c.iq = 0.5 * c.unit / (r_[i] * r_[q]);
        c.jq = -0.5 * c.unit / (r_[j] * r_[q]), c.ii = -c.unit / (r_[i] * r_[i]);
        c.square = 2 * (c.ij * c.ij + c.iq * c.iq + c.jq * c.jq) + c.ii * c.ii;
        return c;
    }

    void change(const Edge& c, double by, std::vector<double>& X, double sign) const {
        const double move = sign * by;
        X[at(c.i, c.j)] += move * c.ij, X[at(c.j, c.i)] += move * c.ij;
        X[at(c.i, c.q)] += move * c.iq, X[at(c.q, c.i)] += move * c.iq;
        X[at(c.j, c.q)] += move * c.jq, X[at(c.q, c.j)] += move * c.jq;
        X[at(c.i, c.i)] += move * c.ii;
    }

    // The best t of one inequality, the others as they are; `left` is what is left of the whole.
    void move(Edge& c, std::vector<double>& left) {
        const double along = 2 * (c.ij * left[at(c.i, c.j)] + c.iq * left[at(c.i, c.q)] + c.jq * left[at(c.j, c.q)]) +
                             c.ii * left[at(c.i, c.i)];
        const double t = std::max(0.0, c.t + along / c.square), by = t - c.t;
        if (by == 0) return;
        c.t = t;
        change(c, by, T_, 1.0);
        change(c, by, left, -1.0);
    }

    void keep_most(std::vector<std::pair<double, Edge>>& found, size_t most) const {
        auto before = [](const std::pair<double, Edge>& a, const std::pair<double, Edge>& b) {
            const Edge &one = a.second, &two = b.second;
            return std::make_tuple(-a.first, one.i, one.j, one.q) < std::make_tuple(-b.first, two.i, two.j, two.q);
        };
        if (found.size() > most) {
            std::nth_element(found.begin(), found.begin() + most, found.end(), before);
            found.resize(most);
        }
        std::sort(found.begin(), found.end(), before);
    }
};

}  // namespace exact
}  // namespace unpooled
