// Where the centroids of a node may lie, and the cheapest place there for a cluster.
//
// A cluster of mass W and mean y costs W |m - y|^2 + p . m + const at m. Its region is a box, perhaps cut by half-spaces
// A_j . m >= c_j (a Voronoi cell). Half-spaces are priced by multipliers mu >= 0: every mu gives a valid lower bound,
// and coordinate ascent on mu drives it up to the true minimum. Lower bounds come with a bound on their rounding error.
#pragma once
#include <vector>

#include "rounding.hpp"

namespace unpooled {
namespace exact {

struct Region {
    const double* lo;
    const double* hi;
    std::vector<double> normal;  // (J, d), of length one
    std::vector<double> offset;  // (J,) lowered by the rounding errors of the half-space
    double width;                // of the box, at its widest

    int halves() const { return static_cast<int>(offset.size()); }
    double reach(int l) const { return std::max(std::fabs(lo[l]), std::fabs(hi[l])); }
};

// A value with the largest distance of the true one from it.
struct Estimate {
    double value = 0, error = 0;
    double low() const { return value - error; }
};

// A cluster in one column: its cost at m is W (m - y)^2 + more m^2 + p m.
struct Parabola {
    double mass, more;
    double y, blur;   // the true mean lies within `blur` of y
    double p, loose;  // the true price lies within `loose` of p; the caller accounts for what that changes in p m
    double relative;  // error of mass

    Estimate at(double m) const {
        const double z = m - y, spread = mass * z * z, bent = more * m * m, paid = p * m;
        return {spread + bent + paid, 4 * relative * (spread + std::fabs(bent) + std::fabs(paid)) +
                                          mass * blur * (2 * std::fabs(z) + blur) + kTiny};
    }
};

// The minimum over [lo, hi]. `m` is nearly the argmin, no farther from it than `off` where the cost is convex. A convex
// cost is at least its value at m less what its slope there, with all errors, can still gain; a concave one has its
// minimum at an end.
inline Estimate column_minimum(const Parabola& c, double lo, double hi, double& m, double& off) {
    const double a = c.mass + c.more, doubt = c.relative * (c.mass + std::fabs(c.more)), width = hi - lo;
    Estimate found;
    if (a > 0) {
        const double free = c.more == 0 ? c.y - c.p / (2 * a) : (2 * c.mass * c.y - c.p) / (2 * a);
        m = std::min(std::max(free, lo), hi);
        const double z = m - c.y, slope = 2 * (c.mass * z + c.more * m) + c.p;
        const double unsure = 2 * c.mass * c.blur + c.loose +
                              4 * c.relative * (c.mass * std::fabs(z) + std::fabs(c.more * m) + std::fabs(c.p));
        double gain = std::fabs(slope) + unsure;
        if (m == lo) gain = std::max(0.0, unsure - slope);
        else if (m == hi) gain = std::max(0.0, unsure + slope);
        const double curve = a - doubt;
        found = c.at(m);
        off = curve > 0 ? gain / (2 * curve) : kInf;
        found.error += curve > 0 ? gain * std::min(0.5 * off, width) : (gain - curve * width) * width;
        return found;
    }
    const Estimate low = c.at(lo), high = c.at(hi);
    m = low.low() <= high.low() ? lo : hi;
    found = m == lo ? low : high;
    found.error += std::max(0.0, a + doubt) * width * width;
    off = kInf;
    return found;
}

// Drive the multipliers mu (J,) of min a|m|^2 + b.m over the region (a > 0) towards the best; `work` holds d numbers.
inline void ascend_walls(int d, double a, const double* b, const Region& region, int sweeps, double* mu, double* work) {
    const int J = region.halves();
    double* priced = work;  // b - sum_j mu_j A_j
    for (int l = 0; l < d; ++l) {
        priced[l] = b[l];
        for (int j = 0; j < J; ++j) priced[l] -= mu[j] * region.normal[j * d + l];
    }
    const double accuracy = 1e-14 * region.width;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        double moved = 0;
        for (int j = 0; j < J; ++j) {
            const double* A = &region.normal[j * d];
            double at = mu[j], below = -1, above = kInf;  // the root of the slack lies between; -1: zero is untried
            for (int step = 0; step < 60; ++step) {
                double slack = -region.offset[j], slope = 0;
                for (int l = 0; l < d; ++l) {
                    const double free = -(priced[l] - (at - mu[j]) * A[l]) / (2 * a);
                    slack += A[l] * std::min(std::max(free, region.lo[l]), region.hi[l]);
                    if (free > region.lo[l] && free < region.hi[l]) slope += A[l] * A[l] / (2 * a);
                }
                if (std::fabs(slack) <= accuracy || (at == 0 && slack >= 0)) break;
                (slack < 0 ? below : above) = at;
                double next = slope > 0 ? at - slack / slope : (slack < 0 ? 2 * at + a * region.width : 0.0);
                next = std::max(next, 0.0);
                if (next >= above || next <= below) next = 0.5 * (std::max(below, 0.0) + above);
                if (!(next <= 1e12 * a * region.width)) break;  // no point of the box is in the half-space
                if (next == at) break;
                at = next;
            }
            const double change = at - mu[j];
            if (change != 0) {
                for (int l = 0; l < d; ++l) priced[l] -= change * A[l];
                mu[j] = at;
                moved = std::max(moved, std::fabs(change));
            }
        }
        if (moved <= 1e-13 * a * region.width || J == 1) break;
    }
}

// The price q_l less what the multipliers pay back, as far from the true one as `loose` says.
inline double priced_column(int d, int l, double q, const Region& region, const double* mu, double& loose) {
    const int J = region.halves();
    double p = q, size = std::fabs(q);
    for (int j = 0; j < J; ++j) {
        const double back = mu[j] * region.normal[j * d + l];
        p -= back;
        size += std::fabs(back);
    }
    loose = J ? rounding(2 * J + 2) * size : 0.0;
    return p;
}

// What the multipliers earn: sum_j mu_j c_j.
inline Estimate earned(const Region& region, const double* mu) {
    Estimate sum;
    double size = 0;
    const int J = region.halves();
    for (int j = 0; j < J; ++j) {
        sum.value += mu[j] * region.offset[j];
        size += std::fabs(mu[j] * region.offset[j]);
    }
    sum.error = rounding(J + 2) * size;
    return sum;
}

// A cluster of mass W whose mean is within `blur` (d,) of y, with prices q (d,) or none: the lowest cost in its region,
// for given multipliers. `m` gets the point where the relaxed cost is lowest, `off` the square of its distance from the
// true one.
inline Estimate region_minimum(int d, Parabola c, const double* y, const double* blur, const double* q,
                               const Region& region, const double* mu, double* m, double& off) {
    Estimate sum = earned(region, mu);
    double size = std::fabs(sum.value);
    off = 0;
    for (int l = 0; l < d; ++l) {
        c.y = y[l], c.blur = blur[l];
        c.p = priced_column(d, l, q ? q[l] : 0.0, region, mu, c.loose);
        double astray;
        const Estimate part = column_minimum(c, region.lo[l], region.hi[l], m[l], astray);
        off += (astray + blur[l]) * (astray + blur[l]);
        sum.value += part.value;
        sum.error += part.error + c.loose * region.reach(l);
        size += std::fabs(part.value);
    }
    sum.error = (sum.error + rounding(d + 4) * size) * (1 + rounding(4 * d + 16));
    return sum;
}

// The square of the distance of y from the region, from below; `mu` (J,) and `work` (d,) are scratch.
inline double distance_below(int d, const double* y, const double* blur, const Region& region, int sweeps, double* mu,
                             double* m, double* work) {
    double b[64], off;
    std::fill(mu, mu + region.halves(), 0.0);
    for (int l = 0; l < d; ++l) b[l] = -2 * y[l];
    if (region.halves()) ascend_walls(d, 1.0, b, region, sweeps, mu, work);
    const Parabola unit{1.0, 0.0, 0, 0, 0, 0, rounding(4)};
    return std::max(0.0, region_minimum(d, unit, y, blur, nullptr, region, mu, m, off).low());
}

// Does the region hold a point? One that does lies no farther from the box's middle than its corners.
inline bool feasible(int d, const Region& region, double* work) {
    double middle[64], blur[64], mu[64], m[64], reach = 0;
    for (int l = 0; l < d; ++l) {
        if (region.lo[l] > region.hi[l]) return false;
        middle[l] = 0.5 * region.lo[l] + 0.5 * region.hi[l];
        blur[l] = 0;  // any point will do as the middle
        const double half = std::max(region.hi[l] - middle[l], middle[l] - region.lo[l]);
        reach += half * half;
    }
    if (!region.halves()) return true;
    return distance_below(d, middle, blur, region, 200, mu, m, work) <= reach * (1 + rounding(2 * d + 8)) + kTiny;
}

// A lower bound on min q.m over the region: a linear programme, by proximal steps that end at its vertex. `m` gets the
// point. The value returned is that of the multipliers, hence valid wherever the steps stopped.
inline double region_linear(int d, const double* q, const Region& region, double* m, double* work) {
    const int J = region.halves();
    double mu[64] = {0};
    auto bound = [&](double* corner) {
        Estimate sum = earned(region, mu);
        double size = std::fabs(sum.value);
        for (int l = 0; l < d; ++l) {
            double loose;
            const double p = priced_column(d, l, q[l], region, mu, loose), low = p * region.lo[l], high = p * region.hi[l];
            corner[l] = low <= high ? region.lo[l] : region.hi[l];
            sum.value += std::min(low, high);
            sum.error += loose * region.reach(l) + kTiny;
            size += std::min(std::fabs(low), std::fabs(high)) + std::fabs(std::min(low, high));
        }
        return sum.value - (sum.error + rounding(d + 4) * size) * (1 + rounding(4 * d + 16));
    };
    bool zero = true;
    double scale = 0;
    for (int l = 0; l < d; ++l) {
        zero = zero && q[l] == 0;
        scale = std::max(scale, std::fabs(q[l]));
    }
    const double corners = bound(m);
    double best = zero ? 0.0 : corners;
    if (!J) return best;
    double b[64], at[64], corner[64], off, blur[64] = {0};
    if (zero) {  // any point of the region will do: the one nearest the box's middle
        for (int l = 0; l < d; ++l) at[l] = 0.5 * region.lo[l] + 0.5 * region.hi[l];
        distance_below(d, at, blur, region, 100, mu, m, work);
        return best;
    }
    const double a = 0.5 * scale / region.width;
    std::copy(m, m + d, at);
    for (int step = 0; step < 50; ++step) {
        for (int l = 0; l < d; ++l) b[l] = q[l] - 2 * a * at[l];
        ascend_walls(d, a, b, region, 100, mu, work);
        region_minimum(d, Parabola{a, 0.0, 0, 0, 0, 0, rounding(4)}, at, blur, q, region, mu, m, off);
        best = std::max(best, bound(corner));
        double moved = 0;
        for (int l = 0; l < d; ++l) moved = std::max(moved, std::fabs(m[l] - at[l]));
        std::copy(m, m + d, at);
        if (moved <= 1e-12 * region.width) break;
    }
    return best;
}

}  // namespace exact
}  // namespace unpooled
