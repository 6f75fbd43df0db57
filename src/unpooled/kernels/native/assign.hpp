// The assignment step that totals, nearest, local steps, k-means, mini-batch and scatter share, for any d and k:
// PackedCenters has the centres in the layout that d asks for, RowBlock finds the nearest of them for up to 128 rows.
//
// Here it is decided, by PackedCenters::rows_in_lanes, whether rows_in_lanes.hpp (d <= 24) or centers_in_lanes.hpp
// (d > 24) runs. Blocks are small so that their rows stay in the first or second cache for all sets of centres.
#pragma once
#include "centers_in_lanes.hpp"
#include "paths.hpp"
#include "rows_in_lanes.hpp"

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
    const double* raw = nullptr;  // (sets, k, d), borrowed
    int64_t padded;               // places per set
    Buffer<double> quads;         // 4 < d <= 24: by fours
    Buffer<T> shift;              // d > 24: what rows and centres are moved by, the centre of smallest norm
    Buffer<double> reach;         // d > 24: the largest norm of a moved centre, of each set
    Buffer<T> panels, starts;     // d > 24: negated moved centres, and |c|^2 / 2
    Buffer<T> moved;              // d > 24: one centre, as it is moved

    PackedCenters(int64_t sets, int64_t k, int64_t d) : sets(sets), k(k), d(d), rows_in_lanes(use_lanes(d)) {
        narrow(k);
        if (rows_in_lanes && !use_registers(d)) quads.resize(sets * padded * d);
        if (!rows_in_lanes) {
            shift.resize(d);
            moved.resize(d);
            reach.resize(sets);
            panels.resize(sets * padded * d);
            starts.resize(sets * padded);
        }
    }

    // From now on k centres per set, no more than there was room made for.
    void narrow(int64_t count) {
        k = count;
        padded = round_up(k, rows_in_lanes ? QUAD : LANES<T>);
    }

    void fill(const double* centers) {
        raw = centers;
        if (rows_in_lanes) {
            if (!use_registers(d))
                for (int64_t r = 0; r < sets; ++r) pack_quads(centers + r * k * d, k, d, quads.get() + r * padded * d);
            return;
        }
        double smallest = __builtin_inf();
        const double* nearest_origin = centers;
        for (int64_t j = 0; j < sets * k; ++j) {
            const double norm = squared_norm(centers + j * d, d);
            if (!(norm < smallest)) continue;
            smallest = norm;
            nearest_origin = centers + j * d;
        }
        for (int64_t t = 0; t < d; ++t) shift[t] = static_cast<T>(nearest_origin[t]);
        constexpr int L = LANES<T>;
        for (int64_t r = 0; r < sets; ++r) {
            double largest = 0;
            for (int64_t j = 0; j < padded; ++j) {
                const int64_t place = r * padded + j;
                T* to = panels.get() + place / L * d * L + place % L;
                const double* c = centers + (r * k + j) * d;
                if (j >= k) {
                    for (int64_t t = 0; t < d; ++t) to[t * L] = T(0);
                    starts[place] = static_cast<T>(__builtin_inf());
                    continue;
                }
                for (int64_t t = 0; t < d; ++t) moved[t] = static_cast<T>(c[t] - static_cast<double>(shift[t]));
                for (int64_t t = 0; t < d; ++t) to[t * L] = -moved[t];
                const double half = 0.5 * squared_norm(moved.get(), d);
                starts[place] = static_cast<T>(half);
                largest = larger(largest, half);
            }
            reach[r] = __builtin_sqrt(2 * largest);
        }
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
        const int64_t rows = block_rows(p.d);
        if (p.rows_in_lanes) {
            own_lanes_.resize(rows * p.d);
        } else {
            moved_.resize(rows * p.d);
            scores_.resize(rows * p.sets * p.padded);
        }
    }

    void load(const PackedCenters<T>& p, const T* x, int64_t rows) {
        x_ = x;
        rows_ = rows;
        if (p.rows_in_lanes) {
            ld_ = block_rows(p.d);
            lanes_ = own_lanes_.get();
            to_lanes(x, rows, p.d, own_lanes_.get(), ld_);
            return;
        }
        const int64_t d = p.d;
        for (int64_t i = 0; i < rows; ++i) norms_[i] = move(x + i * d, p.shift.get(), d, moved_.get() + i * d);
        const int64_t whole = round_up(rows, ROW_GROUP);
        std::memset(moved_.get() + rows * d, 0, static_cast<size_t>((whole - rows) * d) * sizeof(T));
        score(moved_.get(), whole, d, p.panels.get(), p.starts.get(), p.sets * p.padded / LANES<T>, scores_.get(),
              Prefetcher(x + rows * d, rows * d * static_cast<int64_t>(sizeof(T))));
    }

    // d <= 24 only: rows that were put in lanes before.
    void borrow(const T* x, const double* lanes, int64_t ld, int64_t rows) {
        x_ = x;
        rows_ = rows;
        lanes_ = lanes;
        ld_ = ld;
    }

    void nearest(const PackedCenters<T>& p, int64_t set) {
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
            const T* s = row_scores(p, set, i);
            labels[i] = nearest_by_score(p, set, i);
            sqdist[i] = UNPOOLED_ISA::sqdist(x_ + i * p.d, p.set(set) + labels[i] * p.d, p.d);
            runner_up[i] = __builtin_inf();
            if (p.k == 1) continue;
            const int64_t other = lowest(s, p.padded, labels[i]).place;
            runner_up[i] = UNPOOLED_ISA::sqdist(x_ + i * p.d, p.set(set) + other * p.d, p.d);
        }
    }

    // d > 24, after nearest(): calls put(j, bound) for every centre j, with a lower bound of the distance of row i to
    // it; gives the distance to the nearest. Scores differ by half of what squared distances differ by.
    template <class Put>
    double bounds(const PackedCenters<T>& p, int64_t set, int64_t i, Put&& put) const {
        const T* s = row_scores(p, set, i);
        const double sq = UNPOOLED_ISA::sqdist(x_ + i * p.d, p.set(set) + labels[i] * p.d, p.d);
        const double own = static_cast<double>(s[labels[i]]) + doubt(p, set, i);
        for (int64_t j = 0; j < p.k; ++j) {
            const double least = j == labels[i] ? sq : sq + 2 * (static_cast<double>(s[j]) - own);
            put(j, __builtin_sqrt(larger(least, 0.0)));
        }
        return __builtin_sqrt(sq);
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
    const T* row_scores(const PackedCenters<T>& p, int64_t set, int64_t i) const {
        return scores_.get() + (i * p.sets + set) * p.padded;
    }

    // Scores of row i closer than this may be out of order.
    double doubt(const PackedCenters<T>& p, int64_t set, int64_t i) const {
        return score_rounding<T>(p.d) * p.reach[set] * (__builtin_sqrt(norms_[i]) + p.reach[set]);
    }

    int64_t nearest_by_score(const PackedCenters<T>& p, int64_t set, int64_t i) const {
        const T* scores = row_scores(p, set, i);
        const Lowest<T> found = lowest(scores, p.padded);
        const double doubt = this->doubt(p, set, i);
        if (static_cast<double>(found.second) - static_cast<double>(found.first) > doubt) return found.place;
        int64_t nearest = 0;
        double least = __builtin_inf();
        for (int64_t j = 0; j < p.k; ++j) {
            if (static_cast<double>(scores[j]) - static_cast<double>(found.first) > doubt) continue;
            const double sq = UNPOOLED_ISA::sqdist(x_ + i * p.d, p.set(set) + j * p.d, p.d);
            if (!(sq < least)) continue;
            least = sq;
            nearest = j;
        }
        return nearest;
    }

    const T* x_ = nullptr;
    int64_t rows_ = 0;
    const double* lanes_ = nullptr;
    int64_t ld_ = 0;
    double norms_[MOST_ROWS];  // d > 24: squared norms of the moved rows
    Buffer<double> own_lanes_;
    Buffer<T> moved_, scores_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
