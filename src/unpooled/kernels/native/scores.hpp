// The nearest centre for d > 24 by scores, for a block of rows and R sets of centres.
//
// Scores are taken in float, whatever the rows are: twice as many lanes. Where two of them are closer than its rounding
// can tell, distances in double decide, so the labels are those of double. Rows that float can rarely tell apart, of
// groups far from each other, are scored in double from then on.
#pragma once
#include "centers_in_lanes.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// What rows and centres are moved by: the centre of smallest norm; the mean of the centres, for rows that are kept
// while the centres move; or what it was the last time.
enum class Shift { SMALLEST, MEAN, SAME };

// R sets of k centres as score() takes them, in numbers of type S and groups of L: moved, and in units of a power of
// two near the largest of them, so that float neither overflows nor fades.
template <class T, class S, int L = LANES<S>>
struct ScoredCenters {
    int64_t padded = 0;
    Buffer<T> shift;          // what rows and centres are moved by
    double unit = 1;
    Buffer<double> reach;     // (sets) the largest norm of a moved centre
    Buffer<S> panels, starts; // negated moved centres, and |c|^2 / 2

    void fill(const double* centers, int64_t sets, int64_t k, int64_t d, Shift by = Shift::SMALLEST) {
        padded = round_up(k, L);
        shift.resize(d);
        reach.resize(sets);
        panels.resize(sets * padded * d);
        starts.resize(sets * padded);
        moved_.resize(d);
        if (by != Shift::SAME) place(centers, sets * k, d, by);
        for (int64_t r = 0; r < sets; ++r) {
            double largest = 0;
            for (int64_t j = 0; j < padded; ++j) {
                const int64_t at = r * padded + j;
                S* to = panels.get() + at / L * d * L + at % L;
                if (j >= k) {
                    for (int64_t t = 0; t < d; ++t) to[t * L] = S(0);
                    starts[at] = static_cast<S>(__builtin_inf());
                    continue;
                }
                const double* c = centers + (r * k + j) * d;
                for (int64_t t = 0; t < d; ++t)
                    moved_[t] = static_cast<S>((c[t] - static_cast<double>(shift[t])) * unit);
                for (int64_t t = 0; t < d; ++t) to[t * L] = -moved_[t];
                const double half = 0.5 * squared_norm(moved_.get(), d);
                starts[at] = static_cast<S>(half);
                largest = larger(largest, half);
            }
            reach[r] = __builtin_sqrt(2 * largest);
        }
    }

private:
    void place(const double* centers, int64_t count, int64_t d, Shift by) {
        double smallest = __builtin_inf(), largest = 0;
        const double* origin = centers;
        for (int64_t j = 0; j < count; ++j) {
            const double norm = squared_norm(centers + j * d, d);
            if (!(norm < smallest)) continue;
            smallest = norm;
            origin = centers + j * d;
        }
        if (by == Shift::MEAN) {
            mean_.resize(d);
            clear(mean_.get(), d);
            for (int64_t j = 0; j < count; ++j)
                for (int64_t t = 0; t < d; ++t) mean_[t] += centers[j * d + t] / static_cast<double>(count);
            origin = mean_.get();
        }
        for (int64_t t = 0; t < d; ++t) shift[t] = static_cast<T>(origin[t]);
        for (int64_t j = 0; j < count; ++j) largest = larger(largest, sqdist(shift.get(), centers + j * d, d));
        const bool usual = largest > 0x1p-1000 && largest < 0x1p1000;
        unit = usual ? __builtin_ldexp(1.0, -__builtin_ilogb(largest) / 2) : 1.0;
    }

    Buffer<S> moved_;
    Buffer<double> mean_;
};

// A block of rows and its scores of type S.
template <class T, class S>
class ScoredRows {
public:
    void load(const ScoredCenters<T, S>& c, int64_t sets, int64_t d, const T* x, int64_t rows, int64_t most) {
        const int64_t whole = round_up(rows, ROW_GROUP), cells = rows * d;
        moved_.resize(most * d);
        norms_.resize(most);
        for (int64_t i = 0; i < rows; ++i) norms_[i] = move(x + i * d, c.shift.get(), c.unit, d, moved_.get() + i * d);
        std::memset(moved_.get() + cells, 0, static_cast<size_t>((whole - rows) * d) * sizeof(S));
        scores_.resize(most * sets * c.padded);
        step_ = sets * c.padded;
        score(moved_.get(), whole, d, c.panels.get(), c.starts.get(), step_ / LANES<S>, scores_.get(),
              Prefetcher(x + cells, cells * static_cast<int64_t>(sizeof(T))));
    }

    const S* of(const ScoredCenters<T, S>& c, int64_t set, int64_t i) const {
        return scores_.get() + i * step_ + set * c.padded;
    }

    // Scores of row i closer than this may be out of order, by their own rounding, or by that of the distances (the
    // second term: two distances of a row far away may be equal). A row so far away that its scores may overflow has
    // none that could be told apart; below 2^-100 float fades.
    double doubt(const ScoredCenters<T, S>& c, int64_t set, int64_t i, int64_t d) const {
        if (!(norms_[i] < 0x1p100)) return __builtin_inf();
        const double reach = c.reach[set], size = __builtin_sqrt(norms_[i]) + reach;
        return score_rounding<S>(d) * reach * size + score_rounding<double>(d) * size * size + 0x1p-100;
    }

    // A squared distance is so many times a score's difference.
    static double squared_unit(const ScoredCenters<T, S>& c) { return 2 / (c.unit * c.unit); }

    // The nearest centre of row x, which is number i, passing over the centre `skip`; `measured` counts the distances
    // that were needed to decide.
    int64_t nearest(const ScoredCenters<T, S>& c, const double* centers, int64_t k, int64_t d, int64_t set, int64_t i,
                    const T* x, int64_t skip, int64_t* measured) const {
        const S* scores = of(c, set, i);
        const Lowest<S> found = skip < 0 ? lowest<false>(scores, c.padded, skip) : lowest<true>(scores, c.padded, skip);
        const double doubt = this->doubt(c, set, i, d);
        if (static_cast<double>(found.second) - static_cast<double>(found.first) > doubt) return found.place;
        int64_t nearest = 0;
        double least = __builtin_inf();
        for (int64_t j = 0; j < k; ++j) {
            if (j == skip || static_cast<double>(scores[j]) - static_cast<double>(found.first) > doubt) continue;
            const double sq = sqdist(x, centers + j * d, d);
            ++*measured;
            if (!(sq < least)) continue;
            least = sq;
            nearest = j;
        }
        return nearest;
    }

private:
    int64_t step_ = 0;
    Buffer<double> norms_;  // squared, of the moved rows
    Buffer<S> moved_, scores_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
