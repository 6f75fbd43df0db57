// Where the centroids of a node may lie, and the cheapest place there for a cluster.
//
// A cluster of mass a costs a|m|^2 + b.m + const at m. Its region is a box, perhaps cut by half-spaces
// A_j . m >= c_j (a Voronoi cell). Half-spaces are priced by multipliers mu >= 0: every mu gives a valid lower bound,
// and coordinate ascent on mu drives it up to the true minimum.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace unpooled {
namespace exact {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Region {
    const double* lo;
    const double* hi;
    std::vector<double> normal;  // (J, d), of length one
    std::vector<double> offset;  // (J,)
    double width;                // of the box, at its widest

    int halves() const { return static_cast<int>(offset.size()); }
};

// argmin and minimum over [lo, hi] of a m^2 + b m, coordinate by coordinate; a <= 0 has its minimum at an end.
inline double box_minimum(int d, double a, const double* b, const double* lo, const double* hi, double* m) {
    double value = 0;
    for (int l = 0; l < d; ++l) {
        double at;
        if (a > 0) {
            at = std::min(std::max(-b[l] / (2 * a), lo[l]), hi[l]);
        } else {
            const double low = (a * lo[l] + b[l]) * lo[l], high = (a * hi[l] + b[l]) * hi[l];
            at = low <= high ? lo[l] : hi[l];
        }
        m[l] = at;
        value += (a * at + b[l]) * at;
    }
    return value;
}

// A lower bound on min a|m|^2 + b.m over the region (a > 0), and the point that attains the relaxed minimum. `mu` (J,)
// is where the ascent starts and where it ended. Exact up to rounding once the sweeps have converged.
inline double region_minimum(int d, double a, const double* b, const Region& region, int sweeps, double* mu, double* m,
                             double* work) {
    const int J = region.halves();
    if (!J) return box_minimum(d, a, b, region.lo, region.hi, m);
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
    double value = box_minimum(d, a, priced, region.lo, region.hi, m);
    for (int j = 0; j < J; ++j) value += mu[j] * region.offset[j];
    return value;
}

// Does the region hold a point? The dual of projecting the box's middle onto it may not exceed what the box allows.
inline bool feasible(int d, const Region& region, double* work) {
    double b[64], mu[64] = {0}, m[64], reach = 0, middle = 0;
    for (int l = 0; l < d; ++l) {
        if (region.lo[l] > region.hi[l]) return false;
        const double c = 0.5 * (region.lo[l] + region.hi[l]);
        b[l] = -2 * c;
        middle += c * c;
        reach += 0.25 * (region.hi[l] - region.lo[l]) * (region.hi[l] - region.lo[l]);
    }
    if (!region.halves()) return true;
    return region_minimum(d, 1.0, b, region, 200, mu, m, work) + middle <= reach * (1 + 1e-6) + 1e-12;
}

// A lower bound on min q.m over the region: a linear programme, by proximal steps that end at its vertex. `m` gets the
// point. The value returned is that of the multipliers, hence valid wherever the steps stopped.
inline double region_linear(int d, const double* q, const Region& region, double* m, double* work) {
    double best = box_minimum(d, 0.0, q, region.lo, region.hi, m);
    const int J = region.halves();
    bool zero = true;
    for (int l = 0; l < d; ++l) zero = zero && q[l] == 0;
    if (!J || zero) {
        if (J) {  // any point of the region will do: the one nearest the box's middle
            double b[64], mu[64] = {0};
            for (int l = 0; l < d; ++l) b[l] = -(region.lo[l] + region.hi[l]);
            region_minimum(d, 1.0, b, region, 100, mu, m, work);
        }
        return best;
    }
    double scale = 0;
    const double width = region.width;
    for (int l = 0; l < d; ++l) scale = std::max(scale, std::fabs(q[l]));
    const double a = 0.5 * scale / width;
    double b[64], mu[64] = {0}, priced[64], at[64], corner[64];
    std::copy(m, m + d, at);
    for (int step = 0; step < 50; ++step) {
        for (int l = 0; l < d; ++l) b[l] = q[l] - 2 * a * at[l];
        region_minimum(d, a, b, region, 100, mu, m, work);
        for (int l = 0; l < d; ++l) {
            priced[l] = q[l];
            for (int j = 0; j < J; ++j) priced[l] -= mu[j] * region.normal[j * d + l];
        }
        double value = box_minimum(d, 0.0, priced, region.lo, region.hi, corner);
        for (int j = 0; j < J; ++j) value += mu[j] * region.offset[j];
        best = std::max(best, value);
        double moved = 0;
        for (int l = 0; l < d; ++l) moved = std::max(moved, std::fabs(m[l] - at[l]));
        std::copy(m, m + d, at);
        if (moved <= 1e-12 * width) break;
    }
    return best;
}

}  // namespace exact
}  // namespace unpooled
