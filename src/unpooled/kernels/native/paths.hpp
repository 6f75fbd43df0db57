// Every choice by shape in one place: which special path runs for which d, k, n, weights. The code that branches asks
// here; README.md has the same as a table, and tests/kernels/test_kernels_map.py compares the two by path_name().
#pragma once
#include <math.h>

#include "simd.hpp"
#include "table.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

constexpr int64_t CELL_DIMENSIONS = 4;    // up to which a row fits the registers, and a cluster's sums a cell
constexpr int64_t LANE_VALUES = 1 << 15;  // of a site that stays in lanes: 256 KB, in the second cache
constexpr int64_t LABELLED_VALUES = 1 << 18;  // of a site whose rows stay in lanes for k-means: 2 MB
constexpr int64_t MANY_ROWS = 1024;       // from which the errors of single rows in float even out
constexpr int64_t KEPT_VALUES = 1 << 21;  // of a site whose moved rows are kept: 8 MB
constexpr int64_t MOST_PAIRED = 1024;     // rows between which all distances are taken: 8 MB

// Assignment: are the rows in the lanes (rows_in_lanes.hpp), or the centres (scores.hpp)?
inline bool use_lanes(int64_t d) { return d <= FEW_DIMENSIONS; }

// Assignment in totals and nearest, and for d > 24 in every Lloyd step: scores in float with rows in the lanes
// (scores_in_lanes.hpp)? Where the rows are in lanes anyway, fewer than 12 centres do not make up for moving them.
inline bool use_lane_scores(int64_t d, int64_t k) { return d > CELL_DIMENSIONS && (!use_lanes(d) || k >= 12); }

// Rows in lanes: do they stay in registers while the centres pass?
inline bool use_registers(int64_t d) { return d <= CELL_DIMENSIONS; }

// Sums by cluster: in cells (dims_up_to_4.hpp)?
inline bool use_cells(int64_t d) { return d <= CELL_DIMENSIONS; }

// Rows of one site: put in lanes once for all steps?
inline bool keep_in_lanes(int64_t n, int64_t d, int64_t values = LANE_VALUES) {
    return use_lanes(d) && n > 0 && n * d <= values;
}

// Rows of one site: moved once for all local steps, or restarts (KeptRows in scores_in_lanes.hpp)?
inline bool keep_moved(int64_t n, int64_t d) { return !use_lanes(d) && n * d <= KEPT_VALUES; }

// K-means in RowSpace: labels and distances kept from step to step (kept_labels.hpp)? Few centres move in most steps, and
// comparing with few of few columns costs no more than finding out what to compare.
inline bool keep_labels(int64_t n, int64_t d, int64_t k) {
    return k >= 20 && k * d >= 200 && keep_in_lanes(n, d, LABELLED_VALUES);
}

// Local steps: one of the four ways of steps.hpp.
enum class StepsPath { CELLS, CACHED, MOVES, PLAIN };

// A cache is of use for d > 24 without weights, where all sites receive the same centres.
inline bool use_cache(int64_t d, bool weighted, bool own_centers) { return !use_lanes(d) && !weighted && !own_centers; }

inline StepsPath steps_path(int64_t n, int64_t d, bool weighted, bool cached) {
    if (use_cells(d) && (n == 0 || keep_in_lanes(n, d))) return StepsPath::CELLS;
    if (use_lanes(d) || weighted) return StepsPath::PLAIN;
    return cached ? StepsPath::CACHED : StepsPath::MOVES;
}

// Candidates for each centre of greedy k-means++, as in scikit-learn; also how many centres a swap chooses from.
inline int64_t candidates_for(int64_t k) { return 2 + static_cast<int64_t>(floor(log(static_cast<double>(k)))); }

// K-means: by the distances between all rows (pairspace.hpp)? If a Lloyd step is cheaper with them, n^2 instead of
// n k d, and enough steps follow to make up for taking them.
inline bool use_pairs(int64_t n, int64_t d, int64_t k, const KMeansPlan& plan) {
    const int64_t starts = plan.n_init + plan.swaps;
    const int64_t steps = starts * (candidates_for(k) + smaller<int64_t>(plan.max_iter, 10));
    return d > CELL_DIMENSIONS && n <= MOST_PAIRED && 2 * n <= k * d && n <= 4 * k * steps;
}

// Fuzzy c-means with m = 2: products in float (fuzzy_in_float.hpp)? With few rows their errors would show.
inline bool fuzzy_in_float(int64_t n, int64_t d) { return !use_lanes(d) && n >= MANY_ROWS; }

// The name of the function, or class, that the shape leads to; null for an unknown stage. For the test of README.md.
inline const char* path_name(const char* stage, const Shape& s) {
    const auto is = [&](const char* name) { return !std::strcmp(stage, name); };
    if (is("assign")) return !use_lanes(s.d) ? "score" : use_registers(s.d) ? "pass_in_registers" : "pass_quads";
    if (is("many_rows")) return use_lane_scores(s.d, s.k) ? "pass_scores" : path_name("assign", s);
    if (is("accumulate")) return use_cells(s.d) ? "CellSums" : "Accumulator::add_rows";
    if (is("step")) return keep_in_lanes(s.n, s.d) ? "Stepper::step_in_lanes" : "Stepper::step_blocks";
    if (is("local_steps")) {
        switch (steps_path(s.n, s.d, s.weighted, s.cached)) {
            case StepsPath::CELLS: return "LocalWorker::steps_in_cells";
            case StepsPath::CACHED: return "LocalWorker::steps_cached";
            case StepsPath::MOVES: return "LocalWorker::steps_by_moves";
            case StepsPath::PLAIN: return "LocalWorker::steps_plain";
        }
    }
    if (is("kmeans")) return use_pairs(s.n, s.d, s.k, s.plan) ? "PairSpace" : "RowSpace";
    if (is("kmeans_step")) return keep_labels(s.n, s.d, s.k) ? "KeptLabels::relabel" : "Stepper::step";
    if (is("fuzzy")) {
        if (fuzzy_in_float(s.n, s.d)) return "FloatBlock::multiply";
        return use_lanes(s.d) ? "FuzzyBlock::distances_in_lanes" : "FuzzyBlock::distances_by_score";
    }
    return nullptr;
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
