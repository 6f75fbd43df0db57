// A lower bound on the inertia of any k clusters, from budgets of rows; without prices and regions.
//
// Give every row a budget b_i >= 0. If no cluster of any rows has a surplus (budgets less cost) above S, then k clusters
// that share out the rows cost at least sum_i b_i - k S. The best budgets are found by column generation: clusters of
// large surplus are added to a linear programme until none is left. Where that leaves a gap, two rows are in one cluster or
// not, and so on. The bound holds whatever stopped the search.
#pragma once
#include <cstdint>

namespace unpooled {
namespace exact {

struct BudgetTask {
    int n, d, k;
    const double* x;  // (n, d)
    const double* w;  // (n,) all above zero
    int32_t* labels;  // (n,) a good clustering; replaced by that of the linear programme, which may be better
    double goal;      // stop when the bound is within this share of the best possible by budgets
    int rounds;       // of the linear programme, at most
    int64_t boxes;    // of centroids that are bounded, at most; the last search may exceed it by the few of one division
    int64_t work;     // steps of arithmetic, at most, about 2e9 to a second; the few of one step more may be spent
    double seconds;   // and how long; infinity for no limit
    int nodes;        // cases that are told apart where budgets leave a gap, at most
};

struct BudgetResult {
    double lower;  // on the inertia of any k clusters, rounded down
    int rounds;
    int64_t boxes;
    int64_t work;
    int nodes;       // cases that were bounded
    bool converged;  // the linear programme of all rows
};

void bound_by_budgets(const BudgetTask& task, BudgetResult& result);

}  // namespace exact
}  // namespace unpooled
