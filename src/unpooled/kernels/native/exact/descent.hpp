// Good partitions to start the search from, by Lloyd's descent, and what a partition costs; the ascent on the multipliers
// of coupled centroids.
#pragma once
#include "problem.hpp"

namespace unpooled {
namespace exact {

inline Best Problem::evaluate(const std::vector<int>& labels, int t0, bool strict) const {
    std::vector<Cluster*> set(K);
    std::deque<std::vector<double>> memory;
    std::deque<Cluster> clusters;
    for (int k = 0; k < K; ++k) {
        memory.emplace_back(3 * d + halves_ + 1, 0.0);
        clusters.push_back(at_rest(memory.back().data()));
        set[k] = &clusters.back();
    }
    for (int t = t0; t < n; ++t) {
        Cluster& c = *set[labels[t]];
        c.mass += points.w[t];
        for (int l = 0; l < d; ++l) c.s[l] += points.w[t] * points.at(t, l);
    }
    for (int k = 0; k < K; ++k)
        for (int l = 0; l < d; ++l) set[k]->m[l] = set[k]->mass > 0 ? set[k]->s[l] / set[k]->mass : 0.0;
    std::vector<std::vector<int>> rows(strict ? K : 0);  // of every cluster, so far
    for (int t = t0; t < n; ++t) {
        Cluster& c = *set[labels[t]];
        if (!strict) {
            c.pairs += points.w[t] * distance(t, c.m) * c.mass;
            continue;
        }
        double distances = 0;
        for (int u : rows[labels[t]]) distances += points.w[u] * points.distance(t, u);
        c.pairs += points.w[t] * distances;
        rows[labels[t]].push_back(t);
    }
    for (int k = 0; k < K; ++k) cost(*set[k], k, 200);
    if (!couplings.empty()) {
        std::vector<double> mu(couplings.size(), 0.0);
        ascend(set.data(), mu.data(), 60);
    }
    Best best(n);
    best.value = total(set.data());
    best.labels = labels;
    best.centers.resize(static_cast<size_t>(K) * d);
    double error = 0, size = 0;
    for (int k = 0; k < K; ++k) {
        error += set[k]->error;
        size += std::fabs(set[k]->f);
        std::copy(set[k]->m, set[k]->m + d, &best.centers[static_cast<size_t>(k) * d]);
    }
    best.upper = best.value + (error + rounding(2 * K + 8) * size) * (1 + rounding(K + 8));
    best.spread = 0;
    for (int t = t0; t < n; ++t)
        best.spread += points.w[t] * distance(t, &best.centers[static_cast<size_t>(labels[t]) * d]);
    return best;
}

inline void Problem::improve(std::vector<int>& labels, int t0, Best& best) const {
    Best now = evaluate(labels, t0, false);
    for (int step = 0; step < 100; ++step) {
        std::vector<int> next = now.labels;
        for (int t = t0; t < n; ++t) {
            double near = distance(t, &now.centers[static_cast<size_t>(next[t]) * d]);
            for (int k = 0; k < K; ++k) {
                const double away = distance(t, &now.centers[static_cast<size_t>(k) * d]);
                if (away < near) near = away, next[t] = k;
            }
        }
        if (next == now.labels) break;
        Best moved = evaluate(next, t0, false);
        if (!(moved.value < now.value)) break;
        now = moved;
    }
    labels = now.labels;
    if (best.value < kInf && (labels == best.labels || !(now.value <= best.value + 1e-6 * best.spread))) return;
    now = evaluate(labels, t0, true);
    if (now.value < best.value) best = now;
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
                double least = kInf, off;
                double b[64], p[64], mu[64], m[64];
                for (int c = 0; c < K; ++c) {
                    if (taken[c]) continue;
                    const double* seed = &centers[static_cast<size_t>(c) * d];
                    for (int l = 0; l < d; ++l) {
                        p[l] = q.empty() ? 0.0 : q[k * d + l] / std::max(1.0, points.rest[0] / K);
                        b[l] = p[l] - 2 * seed[l];
                    }
                    std::fill(mu, mu + 64, 0.0);
                    if (regions[k].halves()) ascend_walls(d, 1.0, b, regions[k], 10, mu, work_.data());
                    const Parabola unit{1.0, 0.0, 0, 0, 0, 0, rounding(4)};
                    const double away = region_minimum(d, unit, seed, zeros(), p, regions[k], mu, m, off).value;
                    if (away < least || as[k] < 0) least = away, as[k] = c;
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

// ---------------------------------------------------------------- coupled centroids

inline double Problem::slack(const Coupling& c, const Cluster& A, const Cluster& B) const {
    double h = 0;
    for (int l = 0; l < d; ++l) h += c.curve * (B.m[l] * B.m[l] - A.m[l] * A.m[l]) + c.tilt[l] * (A.m[l] - B.m[l]);
    return h;
}

inline void Problem::shift(const Coupling& c, Cluster& A, Cluster& B, double by) const {
    A.more += by * c.curve, B.more -= by * c.curve;
    for (int l = 0; l < d; ++l) A.tilt[l] -= by * c.tilt[l], B.tilt[l] += by * c.tilt[l];
    place(A, c.a);
    place(B, c.b);
}

// The argmin of a coupled cluster and nearly its cost, while multipliers are still moving.
inline void Problem::place(Cluster& c, int k) const {
    const Region& region = regions[k];
    const double a = c.mass + c.more;
    c.f = c.mass > 0 ? c.pairs / c.mass : 0.0;
    for (int l = 0; l < d; ++l) {
        const double p = (q.empty() ? 0.0 : q[k * d + l]) + c.tilt[l], y = c.mass > 0 ? c.s[l] / c.mass : 0.0;
        auto at = [&](double m) { return c.mass * (m - y) * (m - y) + (c.more * m + p) * m; };
        if (a > 0) c.m[l] = std::min(std::max((2 * c.s[l] - p) / (2 * a), region.lo[l]), region.hi[l]);
        else c.m[l] = at(region.lo[l]) <= at(region.hi[l]) ? region.lo[l] : region.hi[l];
        c.f += at(c.m[l]);
    }
}

// The clusters as the multipliers say: the errors of many shifts are gone, those of one sum are accounted for.
inline void Problem::rebuild(Cluster* const* set, const double* mu) const {
    std::vector<double> size(K, 0.0);
    for (int k = 0; k < K; ++k) {
        set[k]->more = 0;
        std::fill(set[k]->tilt, set[k]->tilt + d, 0.0);
    }
    for (size_t j = 0; j < couplings.size(); ++j) {
        const Coupling& c = couplings[j];
        if (mu[j] == 0) continue;
        set[c.a]->more += mu[j] * c.curve, set[c.b]->more -= mu[j] * c.curve;
        for (int l = 0; l < d; ++l) {
            set[c.a]->tilt[l] -= mu[j] * c.tilt[l], set[c.b]->tilt[l] += mu[j] * c.tilt[l];
            for (int k : {c.a, c.b}) {
                const double reach = regions[k].reach(l);
                size[k] += mu[j] * (c.curve * reach + std::fabs(c.tilt[l])) * reach;
            }
        }
    }
    for (int k = 0; k < K; ++k) {
        cost(*set[k], k, 1);
        const double doubt = rounding(2.0 * couplings.size() + 8) * size[k];
        set[k]->f -= doubt;
        set[k]->error += 2 * doubt;
    }
}

inline void Problem::ascend(Cluster* const* set, double* mu, int sweeps) const {
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
    rebuild(set, mu);
}

}  // namespace exact
}  // namespace unpooled
