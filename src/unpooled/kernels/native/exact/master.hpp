// The linear programme over known clusters: which budgets are best, if only these clusters are looked at?
//
//   minimise  sum_C cost_C z_C   with   sum over C that contain i of z_C >= 1 for every row i,   sum_C z_C <= k,   z >= 0
//
// Its dual variables are the rows' budgets and the price of a cluster. A primal-dual interior point method, stopped
// early, gives budgets in the middle of the good ones, which change little when a cluster is added. Nothing here needs
// to be exact: a bound holds for any budgets.
#pragma once
#include <cmath>
#include <vector>

#include "surplus.hpp"

namespace unpooled {
namespace exact {

class Master {
public:
    std::vector<double> budgets;  // (n,)
    double price = 0;             // of a cluster
    double value = 0;             // of the programme, to the tolerance
    std::vector<double> shares;   // (columns,) z
    int64_t work = 0;             // steps of arithmetic of all programmes so far

    Master(int n, int k, double unit) : budgets(n, unit), price(unit), n_(n), k_(k), unit_(unit) {}

    void solve(const std::vector<Column>& columns, double tolerance) {
        const int J = static_cast<int>(columns.size()), N = n_ + 1;
        std::vector<double> z(J, std::max(0.02, static_cast<double>(k_) / J)), r(J), s(n_, 0.5), lam(n_), c(J);
        double t = 0.5, sig = std::max(price / unit_, 0.05);
        for (int i = 0; i < n_; ++i) lam[i] = std::max(budgets[i] / unit_, 0.05);
        auto sum_over = [&](const std::vector<double>& v, int j) {
            double sum = 0;
            for (int i : columns[j].rows) sum += v[i];
            return sum;
        };
        for (int j = 0; j < J; ++j) {
            c[j] = columns[j].cost / unit_;
            r[j] = std::max(c[j] - sum_over(lam, j) + sig, 0.3);
        }
        const int pairs = J + n_ + 1;
        std::vector<double> p(N), dr(J), M(static_cast<size_t>(N) * N), rhs(N), dy(N);
        std::vector<double> dz(J), drr(J), ds(n_), az(J), ar(J), as(n_), al(n_), zz(J), zs(n_);
        int64_t a_step = static_cast<int64_t>(N) * N * (N / 6 + 4);  // the factor, and solutions with it
        for (const Column& column : columns) a_step += static_cast<int64_t>(column.rows.size()) * (column.rows.size() / 2 + 12) + 40;
        for (int iteration = 0; iteration < 80; ++iteration) {
            work += a_step;
            double count = 0, mu = t * sig, primal = 0, dual = -k_ * sig, off = 0;
            for (int i = 0; i < n_; ++i) p[i] = 1 + s[i], mu += s[i] * lam[i], dual += lam[i];
            for (int j = 0; j < J; ++j) {
                count += z[j];
                primal += c[j] * z[j];
                mu += z[j] * r[j];
                for (int i : columns[j].rows) p[i] -= z[j];
                dr[j] = c[j] - sum_over(lam, j) + sig - r[j];
                off = std::max(off, std::fabs(dr[j]));
            }
            p[n_] = k_ - count - t;
            for (double each : p) off = std::max(off, std::fabs(each));
            mu /= pairs;
            value = primal * unit_;
            if (std::fabs(primal - dual) <= tolerance * (1e-12 + std::fabs(primal)) && off < std::min(1e-6, std::max(tolerance, 1e-11)))
                break;

            std::fill(M.begin(), M.end(), 0.0);
            for (int j = 0; j < J; ++j) {
                const double weight = z[j] / r[j];
                const std::vector<int>& rows = columns[j].rows;
                for (size_t a = 0; a < rows.size(); ++a) {
                    double* line = &M[static_cast<size_t>(rows[a]) * N];
                    for (size_t b = 0; b <= a; ++b) line[rows[b]] += weight;  // rows ascend
                }
                double* last = &M[static_cast<size_t>(n_) * N];
                for (int i : rows) last[i] += weight;
                last[n_] += weight;
            }
            for (int i = 0; i < n_; ++i) M[static_cast<size_t>(i) * N + i] += s[i] / lam[i] + 1e-13;
            M[static_cast<size_t>(n_) * N + n_] += t / sig + 1e-13;
            if (!factor(M, N)) break;

            // predictor, then corrector
            double center = 0, zt = 0, dt = 0, dsig = 0;
            for (int phase = 0; phase < 2; ++phase) {
                for (int j = 0; j < J; ++j) zz[j] = (phase ? center - az[j] * ar[j] : 0.0) - z[j] * r[j];
                for (int i = 0; i < n_; ++i) zs[i] = (phase ? center - as[i] * al[i] : 0.0) - s[i] * lam[i];
                zt = (phase ? center - dt * dsig : 0.0) - t * sig;
                for (int i = 0; i < n_; ++i) rhs[i] = p[i] + zs[i] / lam[i];
                rhs[n_] = p[n_] - zt / sig;
                for (int j = 0; j < J; ++j) {
                    const double part = (zz[j] - z[j] * dr[j]) / r[j];
                    for (int i : columns[j].rows) rhs[i] -= part;
                    rhs[n_] -= part;
                }
                solve_with(M, N, rhs, dy);
                dsig = -dy[n_];
                dt = (zt - t * dsig) / sig;
                for (int j = 0; j < J; ++j) {
                    double along = -dsig;
                    for (int i : columns[j].rows) along += dy[i];
                    drr[j] = dr[j] - along;
                    dz[j] = (zz[j] - z[j] * drr[j]) / r[j];
                }
                for (int i = 0; i < n_; ++i) ds[i] = (zs[i] - s[i] * dy[i]) / lam[i];
                double ap = 1, ad = 1;
                auto shorten = [](double& step, double at, double by) {
                    if (by < 0) step = std::min(step, -at / by);
                };
                for (int j = 0; j < J; ++j) shorten(ap, z[j], dz[j]), shorten(ad, r[j], drr[j]);
                for (int i = 0; i < n_; ++i) shorten(ap, s[i], ds[i]), shorten(ad, lam[i], dy[i]);
                shorten(ap, t, dt), shorten(ad, sig, dsig);
                if (phase == 0) {
                    double after = (t + ap * dt) * (sig + ad * dsig);
                    for (int j = 0; j < J; ++j) after += (z[j] + ap * dz[j]) * (r[j] + ad * drr[j]);
                    for (int i = 0; i < n_; ++i) after += (s[i] + ap * ds[i]) * (lam[i] + ad * dy[i]);
                    after /= pairs;
                    const double ratio = after / mu;
                    center = mu * std::max(ratio * ratio * ratio, 1e-4);
                    az = dz, ar = drr, as = ds;
                    al.assign(dy.begin(), dy.begin() + n_);
                } else {
                    const double keep = 0.995;
                    ap = std::min(1.0, keep * ap), ad = std::min(1.0, keep * ad);
                    for (int j = 0; j < J; ++j) z[j] += ap * dz[j], r[j] += ad * drr[j];
                    for (int i = 0; i < n_; ++i) s[i] += ap * ds[i], lam[i] += ad * dy[i];
                    t += ap * dt, sig += ad * dsig;
                }
            }
        }
        for (int i = 0; i < n_; ++i) budgets[i] = lam[i] * unit_;
        price = sig * unit_;
        shares = z;
    }

private:
    int n_, k_;
    double unit_;

    // Cholesky of the lower triangle, in place.
    static bool factor(std::vector<double>& M, int N) {
        for (int a = 0; a < N; ++a) {
            double* row = &M[static_cast<size_t>(a) * N];
            for (int b = 0; b <= a; ++b) {
                const double* other = &M[static_cast<size_t>(b) * N];
                double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
                int m = 0;
                for (; m + 4 <= b; m += 4) {
                    s0 += row[m] * other[m], s1 += row[m + 1] * other[m + 1];
                    s2 += row[m + 2] * other[m + 2], s3 += row[m + 3] * other[m + 3];
                }
                for (; m < b; ++m) s0 += row[m] * other[m];
                const double left = row[b] - ((s0 + s1) + (s2 + s3));
                if (a == b) {
                    if (!std::isfinite(left)) return false;
                    row[a] = left > 1e-14 ? std::sqrt(left) : 1e50;  // a direction that does not matter
                } else {
                    row[b] = left / other[b];
                }
            }
        }
        return true;
    }
    static void solve_with(const std::vector<double>& M, int N, const std::vector<double>& rhs, std::vector<double>& out) {
        out = rhs;
        for (int a = 0; a < N; ++a) {
            double sum = out[a];
            for (int m = 0; m < a; ++m) sum -= M[static_cast<size_t>(a) * N + m] * out[m];
            out[a] = sum / M[static_cast<size_t>(a) * N + a];
        }
        for (int a = N - 1; a >= 0; --a) {
            out[a] /= M[static_cast<size_t>(a) * N + a];
            for (int m = 0; m < a; ++m) out[m] -= M[static_cast<size_t>(a) * N + m] * out[a];
        }
    }
};

}  // namespace exact
}  // namespace unpooled
