// Labels of a site's rows from labels and bounds of an earlier time, for d > 24, without weights; for label_cache.hpp.
//
// Hamerly's bound: a row keeps its centre while the centres have moved by less than its margin, which is how much
// farther than the nearest the second nearest was. Where that no longer holds, Elkan's bounds, one per row and centre,
// say which centres may have come near, and only those are measured. Labels are those that measuring everything would
// give: bounds include what rounding may do. For what it buys see label_cache.hpp.
#pragma once
#include "site.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// What rounding may do to a distance that stays below `scale`, to a centre that is the mean of up to n rows.
inline double rounding(int64_t n, int64_t d, double scale) {
    return 0x1p-50 * static_cast<double>(n + d) * __builtin_sqrt(static_cast<double>(d)) * scale;
}

// What is known of the rows of a site, and goes from one time to the next.
struct RowBounds {
    int64_t* labels;  // (n,)
    double* margins;  // (n,) how much farther than its own the second nearest centre is, at least
    float* bounds;    // (n, k) at least so far, plus `moved` as it was then
    double* moved;    // (k,) how far each centre has come, in all

    double bound(int64_t row, int64_t k, int64_t j) const {
        return static_cast<double>(bounds[row * k + j]) - moved[j];
    }
    // Rounded down, so that it stays a bound.
    void put(int64_t row, int64_t k, int64_t j, double distance) const {
        bounds[row * k + j] = static_cast<float>((distance + moved[j]) * (1 - 0x1p-22));
    }
};

template <class T>
class BoundedLabels {
public:
    explicit BoundedLabels(const PackedCenters<T>& packed)
        : d_(packed.d), block_(packed), gathered_(block_rows(d_) * d_) {}

    // Measures every row against all centres; pack() gives those packed.
    template <class Pack>
    void measure_all(const Site<T>& site, int64_t k, const RowBounds& known, Pack&& pack) {
        if (site.n == 0) return;
        const PackedCenters<T>& packed = pack();
        clear(known.moved, k);
        rows_.resize(site.n);
        for (int64_t i = 0; i < site.n; ++i) rows_[i] = i;
        score_rows(site, packed, known, 0, site.n);
    }

    // The same from what is known: centre j has moved by at most drift[j] since (infinite: nothing is known of it).
    // Marks in `differs` the clusters that lose rows or get some.
    template <class Pack>
    void update(const Site<T>& site, const double* centers, int64_t k, const double* drift, double slack,
               const RowBounds& known, bool* differs, Pack&& pack) {
        rows_.resize(site.n);
        before_.resize(site.n);
        advance(site.n, k, drift, known);
        const int64_t count = doubtful(site.n, k, drift, slack, known);
        for (int64_t i = 0; i < count; ++i) before_[i] = known.labels[rows_[i]];
        int64_t at = 0, measured = 0;
        for (; at < count && (at < FIRST || measured * 8 < at * k); ++at)
            measured += measure(site.x + rows_[at] * d_, rows_[at], centers, k, slack, known);
        if (at < count) score_rows(site, pack(), known, at, count);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t from = before_[i], to = known.labels[rows_[i]];
            if (from != to) differs[from] = differs[to] = true;
        }
    }

private:
    static constexpr int64_t FIRST = 8;  // rows that are measured before it is seen whether packing would pay

    void advance(int64_t n, int64_t k, const double* drift, const RowBounds& known) {
        for (int64_t j = 0; j < k; ++j) {
            if (drift[j] < __builtin_inf()) {
                known.moved[j] += drift[j];
                continue;
            }
            for (int64_t i = 0; i < n; ++i) known.bounds[i * k + j] = -__builtin_inff();
        }
    }

    // Lessens the margins by what the centres have moved, and lists the rows that they may not hold any more.
    int64_t doubtful(int64_t n, int64_t k, const double* drift, double slack, const RowBounds& known) {
        int64_t fastest = 0;
        for (int64_t j = 1; j < k; ++j)
            if (drift[j] > drift[fastest]) fastest = j;
        double next = 0;
        for (int64_t j = 0; j < k; ++j)
            if (j != fastest) next = larger(next, drift[j]);
        int64_t count = 0;
        for (int64_t i = 0; i < n; ++i) {
            const int64_t own = known.labels[i];
            known.margins[i] -= drift[own] + (own == fastest ? next : drift[fastest]);
            rows_[count] = i;
            count += !(known.margins[i] > slack);
        }
        return count;
    }

    // A row against its own centre, and those that may be nearer; gives how many were measured.
    int64_t measure(const T* x, int64_t row, const double* centers, int64_t k, double slack,
                    const RowBounds& known) const {
        const int64_t own = known.labels[row];
        int64_t nearest = own, measured = 1;
        double least = sqdist(x, centers + own * d_, d_);
        const double reach = __builtin_sqrt(least) + slack;
        known.put(row, k, own, __builtin_sqrt(least));
        for (int64_t j = 0; j < k; ++j) {
            if (j == own || known.bound(row, k, j) > reach) continue;
            const double sq = sqdist(x, centers + j * d_, d_);
            known.put(row, k, j, __builtin_sqrt(sq));
            ++measured;
            if (sq < least || (sq == least && j < nearest)) {
                least = sq;
                nearest = j;
            }
        }
        double second = __builtin_inf();
        for (int64_t j = 0; j < k; ++j)
            if (j != nearest) second = smaller(second, known.bound(row, k, j));
        known.labels[row] = nearest;
        known.margins[row] = second - __builtin_sqrt(least);
        return measured;
    }

    // The rows from one place in the list to another against all centres.
    void score_rows(const Site<T>& site, const PackedCenters<T>& packed, const RowBounds& known, int64_t from,
                    int64_t to) {
        const int64_t step = block_rows(d_), k = packed.k;
        for (int64_t a = from; a < to; a += step) {
            const int64_t rows = smaller(step, to - a);
            block_.load(packed, to - from == site.n ? site.x + a * d_ : gather(site, rows_.get() + a, rows), rows);
            block_.nearest(packed, 0);
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = rows_[a + i], nearest = block_.labels[i];
                double second = __builtin_inf();
                const double least = block_.bounds(packed, 0, i, [&](int64_t j, double distance) {
                    known.put(row, k, j, distance);
                    if (j != nearest) second = smaller(second, known.bound(row, k, j));
                });
                known.labels[row] = nearest;
                known.margins[row] = second - least;
            }
        }
    }

    const T* gather(const Site<T>& site, const int64_t* rows, int64_t count) {
        for (int64_t i = 0; i < count; ++i)
            std::memcpy(gathered_.get() + i * d_, site.x + rows[i] * d_, static_cast<size_t>(d_) * sizeof(T));
        return gathered_.get();
    }

    int64_t d_;
    RowBlock<T> block_;
    Buffer<T> gathered_;
    Buffer<int64_t> rows_, before_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
