// The assignment step that totals, nearest, local steps, k-means, mini-batch and scatter share, for any d and k:
// PackedCenters has the centres in the layout that d asks for, RowBlock finds the nearest of them for up to 128 rows.
//
// Here it is decided, by PackedCenters, whether rows_in_lanes.hpp (d <= 24) or scores.hpp (d > 24) runs, or where labels
// are enough scores_in_lanes.hpp, which finds the same ones. Blocks are small so that their rows stay in the first or second cache for all sets of centres.
#pragma once
#include "paths.hpp"
#include "rows_in_lanes.hpp"
#include "scores_in_lanes.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

constexpr int64_t MOST_ROWS = 128;  // of any block

// Rows of a block: in lanes (d <= 24) they fit the first cache, moved (d > 24) the second.
inline int64_t block_rows(int64_t d) { return d <= 8 ? MOST_ROWS : use_lanes(d) ? 64 : 32; }

// R sets of k centres, in the layout their dimension asks for. Shared by all workers once filled.
template <class T>
struct PackedCenters {
    int64_t sets, k, d;
    bool rows_in_lanes;
    const double* raw = nullptr;     // (sets, k, d), borrowed
    int64_t filled = 0;              // how often
    int64_t padded;                  // places per set, in lanes
    Buffer<double> quads;            // 4 < d <= 24: by fours
    ScoredCenters<T, float> scored;  // d > 24, not many rows
    LaneCenters<T> lane_scored;      // many rows, d > 4
    bool lane_scores;

    // `many`: scores of rows in lanes, if the shape allows. They give labels, and neither bounds nor the second nearest.
    PackedCenters(int64_t sets, int64_t k, int64_t d, bool many = false)
        : sets(sets), k(k), d(d), rows_in_lanes(use_lanes(d)), lane_scores(many && use_lane_scores(d, k)) {
        narrow(k);
        if (rows_in_lanes && !use_registers(d)) quads.resize(sets * padded * d);
    }

    // From now on k centres per set, no more than there was room made for.
    void narrow(int64_t count) {
        k = count;
        padded = round_up(k, QUAD);
    }

    void fill(const double* centers, Shift by = Shift::SMALLEST) {
        raw = centers;
        ++filled;
        if (lane_scores) lane_scored.fill(centers, sets, k, d, by);
        if (!rows_in_lanes && !lane_scores)
            scored.fill(centers, sets, k, d);
        else if (rows_in_lanes && !use_registers(d))
            for (int64_t r = 0; r < sets; ++r) pack_quads(centers + r * k * d, k, d, quads.get() + r * padded * d);
    }

    const double* set(int64_t r) const { return raw + r * k * d; }

    // d <= 24: a set as nearest_in_lanes() takes it.
    const double* ready(int64_t r) const { return use_registers(d) ? set(r) : quads.get() + r * padded * d; }
};

// A block of at most block_rows(d) rows and, after nearest() or second(), what was found for them.
template <class T>
class RowBlock {
public:
    int64_t labels[MOST_ROWS];
    double sqdist[MOST_ROWS];     // where d > 24 only after second() or distances()
    double runner_up[MOST_ROWS];  // squared distance to the second nearest, from second()

    explicit RowBlock(const PackedCenters<T>& p) {
        if (p.rows_in_lanes) own_lanes_.resize(block_rows(p.d) * p.d);
    }

    // `kept`: where the moved rows are kept, if they are.
    void load(const PackedCenters<T>& p, const T* x, int64_t rows, const MovedLanes* kept = nullptr) {
        x_ = x;
        rows_ = rows;
        // while few rows are in doubt
        by_lane_scores_ = p.lane_scores && measured_rows_ * 16 <= seen_rows_ + 256;
        if (by_lane_scores_) {
            lane_scores_.load(p.lane_scored, p.d, x, rows, block_rows(p.d), kept);
            seen_rows_ += rows * p.sets;
            return;
        }
        if (p.rows_in_lanes) {
            ld_ = block_rows(p.d);
            lanes_ = own_lanes_.get();
            to_lanes(x, rows, p.d, own_lanes_.get(), ld_);
            return;
        }
        if (exact_scores(p))
            exact_.load(exact_centers_, p.sets, p.d, x, rows, block_rows(p.d));
        else
            quick_.load(p.scored, p.sets, p.d, x, rows, block_rows(p.d));
        seen_ += rows * p.sets;
    }

    // d <= 24 only: rows that were put in lanes before.
    void borrow(const T* x, const double* lanes, int64_t ld, int64_t rows) {
        by_lane_scores_ = false;
        x_ = x;
        rows_ = rows;
        lanes_ = lanes;
        ld_ = ld;
    }

    void nearest(const PackedCenters<T>& p, int64_t set) {
        if (by_lane_scores_) {
            lane_scores_.nearest(p.lane_scored, p.d, rows_, set, labels, [&](int64_t i) { return measured(p, set, i); });
            if (p.rows_in_lanes) own_sqdists(x_, rows_, p.d, p.set(set), labels, sqdist);
            return;
        }
        if (p.rows_in_lanes) {
            nearest_in_lanes<false>(lanes_, ld_, rows_, p.d, p.ready(set), p.k, labels, sqdist, nullptr);
            return;
        }
        for (int64_t i = 0; i < rows_; ++i) labels[i] = nearest_by_score(p, set, i);
    }

    // As nearest(), with the distances to the nearest and, infinite if k is 1, to the second nearest.
    void second(const PackedCenters<T>& p, int64_t set) {
        if (p.rows_in_lanes) {
            nearest_in_lanes<true>(lanes_, ld_, rows_, p.d, p.ready(set), p.k, labels, sqdist, runner_up);
            return;
        }
        for (int64_t i = 0; i < rows_; ++i) {
            labels[i] = nearest_by_score(p, set, i);
            sqdist[i] = UNPOOLED_ISA::sqdist(x_ + i * p.d, p.set(set) + labels[i] * p.d, p.d);
            runner_up[i] = __builtin_inf();
            if (p.k == 1) continue;
            const int64_t other = nearest_by_score(p, set, i, labels[i]);
            runner_up[i] = UNPOOLED_ISA::sqdist(x_ + i * p.d, p.set(set) + other * p.d, p.d);
        }
    }

    // d > 24, after nearest(): calls put(j, bound) for every centre j, with a lower bound of the distance of row i to
    // it; gives the distance to the nearest. Scores differ by half of what squared distances differ by.
    template <class Put>
    double bounds(const PackedCenters<T>& p, int64_t set, int64_t i, Put&& put) const {
        return exact_loaded_ ? bounds(p, exact_, exact_centers_, set, i, put) : bounds(p, quick_, p.scored, set, i, put);
    }

    // After nearest(): the squared distances, which for d <= 24 are there already.
    void distances(const PackedCenters<T>& p, int64_t set) {
        if (p.rows_in_lanes) return;
        for (int64_t i = 0; i < rows_; ++i)
            sqdist[i] = UNPOOLED_ISA::sqdist(x_ + i * p.d, p.set(set) + labels[i] * p.d, p.d);
    }

    const T* x() const { return x_; }
    int64_t rows() const { return rows_; }
    const double* lanes() const { return lanes_; }
    int64_t ld() const { return ld_; }

private:
    // The nearest centre of row i by its distances to all.
    int64_t measured(const PackedCenters<T>& p, int64_t set, int64_t i) {
        ++measured_rows_;
        const T* x = x_ + i * p.d;
        int64_t nearest = 0;
        double least = __builtin_inf();
        for (int64_t j = 0; j < p.k; ++j) {
            const double* c = p.set(set) + j * p.d;
            double sq = 0;
            if (p.rows_in_lanes) {
                const int64_t own = 0;
                own_sqdists(x, 1, p.d, c, &own, &sq);
            } else {
                sq = UNPOOLED_ISA::sqdist(x, c, p.d);
            }
            if (!(sq < least)) continue;
            least = sq;
            nearest = j;
        }
        return nearest;
    }

    // Are the scores of the next block to be exact? If so many distances had to be measured that scores in float gain
    // nothing, in lanes or not; exact ones need centres packed for them.
    bool exact_scores(const PackedCenters<T>& p) {
        exact_loaded_ = p.lane_scores || (sizeof(T) == 8 && seen_ >= 256 && measured_ * 16 > seen_ * p.k);
        if (exact_loaded_ && exact_filled_ != p.filled) {
            exact_centers_.fill(p.raw, p.sets, p.k, p.d);
            exact_filled_ = p.filled;
        }
        return exact_loaded_;
    }

    int64_t nearest_by_score(const PackedCenters<T>& p, int64_t set, int64_t i, int64_t skip = -1) {
        const T* x = x_ + i * p.d;
        if (exact_loaded_) {
            int64_t ignored = 0;
            return exact_.nearest(exact_centers_, p.set(set), p.k, p.d, set, i, x, skip, &ignored);
        }
        return quick_.nearest(p.scored, p.set(set), p.k, p.d, set, i, x, skip, &measured_);
    }

    template <class S, class Put>
    double bounds(const PackedCenters<T>& p, const ScoredRows<T, S>& rows, const ScoredCenters<T, S>& centers,
                  int64_t set, int64_t i, Put&& put) const {
        const S* s = rows.of(centers, set, i);
        const double sq = UNPOOLED_ISA::sqdist(x_ + i * p.d, p.set(set) + labels[i] * p.d, p.d);
        const double own = static_cast<double>(s[labels[i]]) + rows.doubt(centers, set, i, p.d);
        const double unit = rows.squared_unit(centers);
        for (int64_t j = 0; j < p.k; ++j) {
            const double least = j == labels[i] ? sq : sq + unit * (static_cast<double>(s[j]) - own);
            put(j, __builtin_sqrt(larger(least, 0.0)));
        }
        return __builtin_sqrt(sq);
    }

    const T* x_ = nullptr;
    int64_t rows_ = 0;
    const double* lanes_ = nullptr;
    int64_t ld_ = 0;
    Buffer<double> own_lanes_;
    ScoredRows<T, float> quick_;  // d > 24
    ScoredRows<T, double> exact_;
    ScoredCenters<T, double> exact_centers_;
    int64_t exact_filled_ = 0, seen_ = 0, measured_ = 0;
    bool exact_loaded_ = false;
    LaneScores<T> lane_scores_;  // many rows, d > 4
    int64_t seen_rows_ = 0, measured_rows_ = 0;
    bool by_lane_scores_ = false;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
