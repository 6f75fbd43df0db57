// The exact solver: k-means at a node, with a price on every centroid, by branch and bound over partitions; for up to
// 32 clusters and 64 columns. Rows are assigned one at a time, farthest first, depth first.
#pragma once
#include <cstdint>
#include <vector>

namespace unpooled {
namespace exact {

enum Symmetry : int { kNone = 0, kCell = 1, kPair = 2, kPublished = 3 };

struct Task {
    int n, d, k;
    const double* x;        // (n, d)
    const double* w;        // (n,) all above zero
    const double* q;        // (k, d), or null: no prices
    const double* lo;       // (k, d)
    const double* hi;       // (k, d)
    int symmetry;           // what the references mean
    int references;         // number of them
    const double* r;        // (references, d)
    const int32_t* cell;    // (k,) the reference in whose cell a centroid lies (kCell)
    const int32_t* warm;    // (n,) labels to start from, or null
    int starts;             // random Lloyd starts
    int64_t nodes;          // how many nodes may be visited, for the suffixes and for the search alike
    double seconds;         // and how long; infinity for no limit
    double* suffix;         // (n + 1,) optimum of the last rows alone, without prices
    bool suffix_known;      // was it filled by an earlier call on the same rows?
};

struct Result {
    double* centers;  // (k, d)
    int32_t* labels;  // (n,)
    double value;     // of the best partition found, rounded up; with cells or couplings its dual bound
    double lower;     // on the value of every partition, rounded down
    int64_t nodes;
    int64_t before;   // nodes of the searches for the remaining rows, which come before it
    bool complete;    // the search ran to its end
    bool proved;      // and, without prices and regions, lower >= value (1 - 1e-9)
};

//   minimise  sum_j w_j min_k |y_j - m_k|^2 + sum_k q_k . m_k   over centroids m_k in a box and, if asked, a cell,
//
// or with centroids coupled by symmetry-breaking constraints. `lower` is always a valid lower bound for the float64
// numbers as given: a search that ran out of nodes or time returns its open bound, the tolerance of the pruning is
// subtracted, and so is a bound on all rounding errors.
void solve(const Task& task, Result& result);

}  // namespace exact
}  // namespace unpooled
