// What the bindings see of the kernels: one table of functions per instruction set.
#pragma once
#include <cstdint>

namespace unpooled {

constexpr int64_t FEW_DIMENSIONS = 24;  // up to which the rows, not the centres, sit in the lanes

struct Rows {
    const void* x;  // (n, d), float if single, else double
    bool single;
    int64_t n, d;
    const double* weights;  // (n,) or null
    const int64_t* offsets;  // (sites + 1,)
    int64_t sites;
};

struct TotalsOut {
    double *sums, *mass, *squares, *inertia;  // squares is null without weights
    int32_t* labels;                          // (sets, rows), null where they are not wanted
};

struct LocalOut {
    double *centers, *mass, *squares, *inertia, *support, *recount, *recount_squares;
};

struct KMeansOut {
    double *centers, *mass, *squares, *inertia;
};

struct MiniBatchOut {
    double *centers, *mass, *squares;
};

struct ScatterOut {
    double *mass, *squares, *distance, *inertia, *silhouette;
};

struct FuzzyOut {
    double *sums, *mass, *rows, *squares, *inertia;
};

struct LocalPlan {
    int64_t steps;
    bool own_centers;  // centers are (sites, k, d), not (k, d)
    bool recount;
};

// What local steps found the last time for the same rows, and what they leave for the next. Nothing depends on it
// but time. With as many steps as the plan, at least one.
struct Recall {
    int64_t* labels;      // (steps, n)
    double* margins;      // (steps, n)
    float* bounds;        // (steps, n, k)
    double* moved;        // (sites, steps, k)
    int64_t* reached;     // (sites,) steps that are there; 0: none
    double* scale;        // (sites,) what distances at the site stay below
    const double* drift;  // (k,) how far each received centre has moved since then, at most
};

struct KMeansPlan {
    int64_t n_init, max_iter, swaps;
};

struct MiniBatchPlan {
    int64_t epochs, batch;
    double rate;
};

struct Table {
    const char* isa;
    void (*totals)(const Rows&, const double* centers, int64_t sets, int64_t k, const TotalsOut&, int threads);
    void (*nearest)(const Rows&, const double* centers, int64_t k, int32_t* labels, double* sqdist, int threads);
    void (*local_steps)(const Rows&, const double* centers, int64_t k, const LocalPlan&, const LocalOut&,
                        const Recall*, int threads);
    void (*kmeans)(const Rows&, int64_t k, const uint64_t* seeds, const KMeansPlan&, const KMeansOut&, int threads);
    void (*minibatch)(const Rows&, const double* centers, int64_t k, const uint64_t* seeds, const MiniBatchPlan&,
                      const MiniBatchOut&, int threads);
    void (*scatter)(const Rows&, const double* centers, int64_t k, const ScatterOut&, int threads);
    void (*fuzzy)(const Rows&, const double* centers, int64_t sets, int64_t k, double m, double power, const FuzzyOut&,
                  int threads);
    void (*memberships)(const Rows&, const double* centers, int64_t k, double m, double power, double* out, int threads);
    void (*fold_moves)(const double* centers, const double* received, const double* weight, int64_t sites, int64_t k,
                       int64_t d, double* weighted, double* plain);
    void (*fold)(double* total, const double* block, int64_t rows, int64_t width);
};

}  // namespace unpooled
