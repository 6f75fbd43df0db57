// A lower bound on the inertia of any k clusters from a semidefinite programme, for few rows of many columns.
//
// Of a clustering let Z_ij be 1 / (mass of their cluster) for rows of one cluster, else 0. Its cost is <D, Z> with
// D_ij = w_i w_j |x_i - x_j|^2 / 2, and Z is positive semidefinite, Z w = 1, Z >= 0, <diag w, Z> <= k, and
// Z_ij + Z_iq <= Z_ii + Z_jq for any three rows. So for any budgets b, any B >= 0 and any t >= 0, with T the matrix of
// the t times those inequalities,
//
//   cost >= sum b + <M, Z> >= sum b + k mu,   M = D - (b w' + w b') / 2 + T - B,   M - mu diag(w) semidefinite, mu <= 0.
//
// The best b, B and t are sought by alternating directions (Wen, Goldfarb, Yin 2010), inequalities are added where they
// are violated (Piccialli, Sudoso, Wiegele 2022). The claim rests on the last line alone: mu is shown by a Cholesky
// factor, whose rounding errors are bounded.
#pragma once
#include <cstdint>

namespace unpooled {
namespace exact {

struct SemidefiniteTask {
    int n, d, k;
    const double* x;        // (n, d)
    const double* w;        // (n,) all above zero
    const int32_t* labels;  // (n,) a good clustering
    double goal;            // stop when the bound is within this share of its cost
    int64_t work;           // steps of arithmetic, at most, about 2e9 to a second; those of some iterations more may be spent
    double seconds;         // and how long; infinity for no limit
};

struct SemidefiniteResult {
    double lower;  // on the inertia of any k clusters, rounded down
    int64_t work;
    int rounds;    // in which inequalities were added
    bool unique;   // no other clustering is better than the given one
};

void bound_by_semidefinite(const SemidefiniteTask& task, SemidefiniteResult& result);

}  // namespace exact
}  // namespace unpooled
