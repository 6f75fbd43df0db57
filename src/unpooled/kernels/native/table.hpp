// What the bindings see of the kernels: their arguments and results as plain pointers, and Table, one function per
// kernel.
//
// isa.cpp fills one Table for each instruction set, dispatch.cpp picks one at run time, bindings.cpp calls it.
#pragma once
#include <cstdint>

namespace unpooled {

// Up to so many dimensions the rows are in the lanes (rows_in_lanes.hpp), above the centres (centers_in_lanes.hpp).
constexpr int64_t FEW_DIMENSIONS = 24;

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

struct ObservedOut {
    double *mass, *squares, *distance, *inertia, *silhouette;  // (sites, k)
    double *sums, *deviations, *known, *known_squares;         // (sites, k, d)
    int32_t* labels;                                           // (n,), null where they are not wanted
    double* sqdist;                                            // (n,), null where they are not wanted
    bool quality;                                              // whether distance and silhouette are wanted
};

struct FuzzyOut {
    double *sums, *mass, *rows, *squares, *inertia;
};

struct LocalPlan {
    int64_t steps;
    bool own_centers;  // centers are (sites, k, d), not (k, d)
    bool recount;
};

// What local steps found in the last call for the same rows, and what they leave for the next (label_cache.hpp). Time
// depends on it, results do not. `steps` below is that of the plan, at least 1. label_cache.py holds the arrays.
struct LabelCache {
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

// What path_name() (paths.hpp) is asked about.
struct Shape {
    int64_t n, d, k;
    bool weighted, cached;
    KMeansPlan plan;
};

struct Table {
    const char* isa;
    const char* (*path_name)(const char* stage, const Shape&);
    void (*totals)(const Rows&, const double* centers, int64_t sets, int64_t k, const TotalsOut&, int threads);
    void (*nearest)(const Rows&, const double* centers, int64_t k, int32_t* labels, double* sqdist, int threads);
    void (*local_steps)(const Rows&, const double* centers, int64_t k, const LocalPlan&, const LocalOut&,
                        const LabelCache*, int threads);
    void (*kmeans)(const Rows&, int64_t k, const uint64_t* seeds, const KMeansPlan&, const KMeansOut&, int threads);
    void (*minibatch)(const Rows&, const double* centers, int64_t k, const uint64_t* seeds, const MiniBatchPlan&,
                      const MiniBatchOut&, int threads);
    void (*scatter)(const Rows&, const double* centers, int64_t k, const ScatterOut&, int threads);
    void (*observed)(const Rows&, const double* shares, const double* centers, int64_t k, const ObservedOut&,
                     int threads);
    void (*fuzzy)(const Rows&, const double* centers, int64_t sets, int64_t k, double m, double power, const FuzzyOut&,
                  int threads);
    void (*memberships)(const Rows&, const double* centers, int64_t k, double m, double power, double* out,
                        int threads);
    void (*fold_moves)(const double* centers, const double* received, const double* weight, int64_t sites, int64_t k,
                       int64_t d, double* weighted, double* plain);
    void (*fold)(double* total, const double* block, int64_t rows, int64_t width);
};

}  // namespace unpooled
