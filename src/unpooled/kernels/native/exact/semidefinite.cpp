// The semidefinite bound: the rows, the rounds, the claim.
#include "semidefinite.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "clock.hpp"
#include "directions.hpp"
#include "rounding.hpp"

namespace unpooled {
namespace exact {

namespace {

// The numbers that the claim rests on: exact powers of two bring weights to 1..4.
class Claim {
public:
    std::vector<double> D, u, s, ww;  // (n, n) D_ij s_i s_j, not above it; (n,) w s; powers of two; w s s
    double low = 0, high = 0;         // the cost of the given clustering
    bool usable = false;

    Claim(const SemidefiniteTask& task, Units& units) : n_(task.n), k_(task.k), labels_(task.labels, task.labels + task.n) {
        const int n = n_, d = task.d;
        double widest = 0;
        for (int l = 0; l < d; ++l) {
            double least = task.x[l], most = task.x[l];
            for (int i = 1; i < n; ++i) least = std::min(least, task.x[i * d + l]), most = std::max(most, task.x[i * d + l]);
            widest = std::max(widest, 0.5 * most - 0.5 * least);
        }
        if (!(widest > 0)) return;
        units.rows = Units::power(widest);
        units.weights = Units::power(*std::max_element(task.w, task.w + n));
        for (int i = 0; i < n; ++i) {
            w_.push_back(std::ldexp(task.w[i], -units.weights));
            if (!(w_[i] > 1e-200)) return;
            const int e = std::ilogb(w_[i]);
            s.push_back(std::ldexp(1.0, -((e - (e & 1)) / 2)));
            u.push_back(w_[i] * s[i]);
            ww.push_back(u[i] * s[i]);
        }
        std::vector<double> mass(k_, 0.0), cost(k_, 0.0);
        for (int i = 0; i < n; ++i) mass[labels_[i]] += w_[i];
        D.assign(static_cast<size_t>(n) * n, 0.0);
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < i; ++j) {
                double away = 0;
                for (int l = 0; l < d; ++l) {
                    const double t = std::ldexp(task.x[i * d + l], -units.rows) - std::ldexp(task.x[j * d + l], -units.rows);
                    away += t * t;
                }
                const double at = 0.5 * u[i] * u[j] * away;
                const double least = std::max(0.0, at * (1 - rounding(d + 10)) - kTiny);
                D[static_cast<size_t>(i) * n + j] = D[static_cast<size_t>(j) * n + i] = least;
                if (labels_[i] == labels_[j]) cost[labels_[i]] += w_[i] * (w_[j] / mass[labels_[i]]) * away;
            }
        double sum = 0;
        for (double c : cost) sum += c;
        const double doubt = rounding(0.5 * n * n + 2.0 * n + d + 20) * sum + kTiny * n;
        low = std::max(0.0, sum - doubt), high = sum + doubt;
        usable = sum > 1e-250 && std::isfinite(sum) && std::all_of(D.begin(), D.end(), [](double x) { return std::isfinite(x); });
    }

    // The bound that these multipliers prove, for the rows in units.
    double bound(const Multipliers& m) const {
        const int n = n_;
        std::vector<double> T(static_cast<size_t>(n) * n, 0.0), size(T.size(), 0.0), count(T.size(), 0.0);
        auto put = [&](int a, int b, double by) {
            if (a < b) std::swap(a, b);
            const size_t at = static_cast<size_t>(a) * n + b;
            T[at] += by, size[at] += std::fabs(by), count[at] += 1;
        };
        for (const Triangle& c : m.triangles) {
            if (!(c.t > 0) || !std::isfinite(c.t)) continue;
            put(c.i, c.j, 0.5 * c.t * s[c.i] * s[c.j]);
            put(c.i, c.q, 0.5 * c.t * s[c.i] * s[c.q]);
            put(c.j, c.q, -0.5 * c.t * s[c.j] * s[c.q]);
            put(c.i, c.i, -c.t * s[c.i] * s[c.i]);
        }
        std::vector<double> M(T.size()), square(T.size());
        for (int i = 0; i < n; ++i)
            for (int j = 0; j <= i; ++j) {
                const size_t at = static_cast<size_t>(i) * n + j;
                const double one = 0.5 * (m.b[i] * s[i]) * u[j], two = 0.5 * u[i] * (m.b[j] * s[j]), B = std::max(0.0, m.B[at]);
                const double sum = ((D[at] - one) - two) + T[at];
                const double off = rounding(count[at] + 10) * (D[at] + std::fabs(one) + std::fabs(two) + size[at]) + kTiny;
                M[at] = sum - off - B;
                M[at] -= rounding(4) * (std::fabs(sum) + off + B);
                M[static_cast<size_t>(j) * n + i] = M[at];
            }
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j) {
                const size_t at = static_cast<size_t>(i) * n + j;
                square[at] = M[at] / std::sqrt(ww[i] * ww[j]);
            }
        const double least = Spectrum(square, n, true).values[0];
        double sum = 0, all = 0, most = 0;
        for (double b : m.b) sum += b, all += std::fabs(b);
        for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(M[static_cast<size_t>(i) * n + i]));
        for (double below = 1e-14 * (most + std::fabs(least)); below < 1e3 * (most + std::fabs(least)); below *= 10) {
            const double mu = std::min(0.0, shown(M, least - below));
            if (mu > -kInf) return sum + k_ * mu - rounding(n + 8.0) * (all + k_ * std::fabs(mu));
        }
        return -kInf;
    }

    // Is the given clustering the only one that costs less than `high`? `lower` is the bound that B belongs to.
    //
    // What such a clustering has of <B, Z> is at most high - lower. So rows with a large B_ij are apart. If k rows are
    // apart from each other, each begins a cluster, and a row that would cost too much in all others belongs to it.
    bool unique(const Multipliers& m, double lower) const {
        const int n = n_;
        const double gap = (high - lower) * (1 + 1e-9);
        double total = 0;
        for (double w : w_) total += w;
        total *= 1 + 1e-9;
        std::vector<double> mass(k_, 0.0);
        std::vector<int> core(n, -1), anchor(k_, -1);
        auto b = [&](int i, int j) {
            const size_t at = static_cast<size_t>(std::max(i, j)) * n + std::min(i, j);
            return std::max(0.0, m.B[at]) / (s[i] * s[j]);
        };
        for (int sweep = 0; sweep < 3; ++sweep)
            for (int c = 0; c < k_; ++c) {
                double best = -1;
                for (int i = 0; i < n; ++i) {
                    if (labels_[i] != c) continue;
                    double least = kInf;
                    if (sweep == 0) {
                        least = 0;
                        for (int j = 0; j < n; ++j) least += labels_[j] != c ? b(i, j) : 0.0;
                    } else {
                        for (int o = 0; o < k_; ++o)
                            if (o != c) least = std::min(least, b(i, anchor[o]));
                    }
                    if (least > best) best = least, anchor[c] = i;
                }
                if (anchor[c] < 0) return false;  // an empty cluster
            }
        for (int c = 0; c < k_; ++c) {
            for (int o = 0; o < c; ++o)
                if (!(2 * b(anchor[c], anchor[o]) * (1 - 1e-9) > gap * total)) return false;
            core[anchor[c]] = c, mass[c] = w_[anchor[c]];
        }
        // costs[c]: what a row has of B with the rows that are known to be in cluster c
        std::vector<double> costs(static_cast<size_t>(n) * k_, 0.0);
        for (int i = 0; i < n; ++i)
            for (int c = 0; c < k_; ++c) costs[static_cast<size_t>(i) * k_ + c] = b(i, anchor[c]);
        int known = k_;
        for (bool more = true; more && known < n;) {
            more = false;
            double held = 0;
            for (double each : mass) held += each;
            for (int i = 0; i < n; ++i) {
                if (core[i] >= 0) continue;
                bool settled = true;
                for (int c = 0; c < k_ && settled; ++c) {
                    const double widest = total - (held - mass[c]) * (1 - 1e-9);
                    if (c != labels_[i]) settled = 2 * costs[static_cast<size_t>(i) * k_ + c] * (1 - 1e-9) > gap * widest;
                }
                if (!settled) continue;
                core[i] = labels_[i];
                mass[core[i]] += w_[i], held += w_[i];
                for (int j = 0; j < n; ++j) costs[static_cast<size_t>(j) * k_ + core[i]] += b(i, j);
                ++known, more = true;
            }
        }
        return known == n;
    }

private:
    int n_, k_;
    std::vector<int> labels_;
    std::vector<double> w_;

    // mu less what the rounding of a Cholesky factor of M - mu diag(ww) leaves in doubt; -infinity if there is none.
    // The factor is that of a matrix nearby: their difference is at most (n + 2) 2^-53 times the trace. ww is at least 1.
    double shown(const std::vector<double>& M, double mu) const {
        const int n = n_;
        std::vector<double> L(M);
        double trace = 0;
        for (int i = 0; i < n; ++i) {
            double& at = L[static_cast<size_t>(i) * n + i];
            const double by = mu * ww[i];
            at = (at - by) - rounding(4) * (std::fabs(at) + std::fabs(by));
            trace += at;
        }
        for (int a = 0; a < n; ++a) {
            double* row = &L[static_cast<size_t>(a) * n];
            for (int b = 0; b <= a; ++b) {
                const double* other = &L[static_cast<size_t>(b) * n];
                double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
                int m = 0;
                for (; m + 4 <= b; m += 4) {
                    s0 += row[m] * other[m], s1 += row[m + 1] * other[m + 1];
                    s2 += row[m + 2] * other[m + 2], s3 += row[m + 3] * other[m + 3];
                }
                for (; m < b; ++m) s0 += row[m] * other[m];
                const double left = row[b] - ((s0 + s1) + (s2 + s3));
                if (a == b) {
                    if (!(left > 0) || !std::isfinite(left)) return -kInf;
                    row[a] = std::sqrt(left);
                } else {
                    row[b] = left / other[b];
                }
            }
        }
        return mu - rounding(2.0 * n + 20) * trace - kTiny * n;
    }
};

}  // namespace

void bound_by_semidefinite(const SemidefiniteTask& task, SemidefiniteResult& result) {
    const int n = task.n;
    const Clock clock(task.seconds);
    Units units;
    result = {0.0, 0, 0, false};
    if (task.k >= n) return;
    Claim claim(task, units);
    if (!claim.usable) return;
    Directions directions(n, task.k, claim.D, claim.s, claim.ww, task.labels);
    double best = 0;
    int stale = 0;
    while (directions.work < task.work && !clock.over() && stale < 4) {
        directions.iterate(result.rounds ? 120 : 200, task.work, clock);
        const Multipliers found = directions.multipliers();
        const double lower = claim.bound(found);
        directions.work += 1LL * n * n * n;
        const double before = best;
        best = std::max(best, lower);
        if (lower > claim.high * (1 - 1e-2) && claim.unique(found, lower)) {
            best = claim.low, result.unique = true;
            break;
        }
        if (best >= claim.high * (1 - task.goal) || directions.work >= task.work) break;
        const bool more = directions.add_triangles();
        ++result.rounds;
        const double left = claim.high - best;
        stale = best - before < (more ? 1e-3 : 1e-2) * left ? stale + 1 : 0;
    }
    result.work = directions.work;
    result.lower = std::max(0.0, units.down(best));
}

}  // namespace exact
}  // namespace unpooled
