// Rows dealt to parts that each look like the whole: the sum of the parts' optima is then nearly the optimum of all.
#pragma once
#include <cstdint>

namespace unpooled {
namespace exact {

struct DealTask {
    int64_t n;
    int d, k, parts;
    const double* x;        // (n, d)
    const double* w;        // (n,)
    const int32_t* labels;  // (n,) a good clustering of all rows
    int sweeps;             // of swaps
};

// part (n,): from 0 to parts - 1. Round robin by cluster and distance to its mean; then pairs of rows of a cluster swap
// parts where that brings the means of the cluster in both parts nearer to its mean over all rows.
void deal(const DealTask& task, int32_t* part);

}  // namespace exact
}  // namespace unpooled
