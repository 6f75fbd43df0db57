// Sums by cluster for d <= 4, any k, with weights or without.
//
// A cell holds all sums of one cluster (residuals, mass, squares, inertia) in 4 or 8 doubles. A row is laid out like
// a cell, the centre of its cluster is subtracted, and the difference is added to the cell: one vector subtraction and
// one vector addition per row, where a loop over so few columns would cost more than its arithmetic.
#pragma once
#include "rows_in_lanes.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// Copies of all cells, which rows use in turn: row i adds to copy i % MOST_COPIES. Consecutive rows often share a
// cluster, and with one copy each would wait until the addition of the row before is done. Below 32 rows one copy is
// cheaper, since the copies have to be cleared and added up.
constexpr int64_t MOST_COPIES = 4;
inline int64_t copies_for(int64_t rows) { return rows < 32 ? 1 : MOST_COPIES; }

// Doubles per cell: 4 where everything fits (the specializations of Cell below), else 8.
constexpr int64_t cell_stride(int64_t d, bool weighted) { return d == 1 || (d == 2 && !weighted) ? 4 : 8; }

// The layout of a cell:
//
//   D = 1   x  inertia  mass  squares
//   D = 2   x  x  inertia  mass | squares
//   D = 3   x  x  x  mass | squares  inertia
//   D = 4   x  x  x  x | squares  inertia  mass
//
// Left of the bar sums are added as one vector, w (row - centre); right of it one by one. row() gives the left part of
// a row: its columns, its squared distance, 0 for the mass (the centre has -1 there, see lay_out_centers()), and for
// D = 1 its weight, which times w is what the squares get.
template <int D>
struct Cell;
template <>
struct Cell<1> {
    static constexpr int INERTIA = 1, MASS = 2, SQUARES = 3;
    template <class T>
    static UNPOOLED_INLINE V4 row(const T* x, double sqdist, double w) {
        return V4{static_cast<double>(x[0]), sqdist, 0, w};
    }
};
template <>
struct Cell<2> {
    static constexpr int INERTIA = 2, MASS = 3, SQUARES = 4;
    template <class T>
    static UNPOOLED_INLINE V4 row(const T* x, double sqdist, double) {
        return join(widen2(x), V2{sqdist, 0});
    }
};
template <>
struct Cell<3> {
    static constexpr int INERTIA = 5, MASS = 3, SQUARES = 4;
    template <class T>
    static UNPOOLED_INLINE V4 row(const T* x, double, double) {
        return join(widen2(x), V2{static_cast<double>(x[2]), 0});
    }
};
template <>
struct Cell<4> {
    static constexpr int INERTIA = 5, MASS = 6, SQUARES = 4;
    template <class T>
    static UNPOOLED_INLINE V4 row(const T* x, double, double) {
        return widen4(x);
    }
};

template <class T>
struct LabelledRows {
    const T* x;
    int64_t rows;
    const int64_t* labels;
    const double *sqdist, *w;
};

template <class T, int D, bool WEIGHTED>
struct CellSums {
    static constexpr int64_t STRIDE = cell_stride(D, WEIGHTED);

    // The centres (k, D) in the layout of cells: (k, STRIDE).
    static void lay_out_centers(const double* centers, int64_t k, double* table) {
        for (int64_t j = 0; j < k; ++j, centers += D, table += STRIDE) {
            for (int64_t t = 0; t < STRIDE; ++t) table[t] = t < D ? centers[t] : 0.0;
            // Up to D = 3 the mass lies in the vector that is added, row minus centre. A row has 0 there, so a centre
            // with -1 there makes the difference 0 - (-1) = 1: every row adds 1 to the mass, or w after the product
            // with its weight. For D = 4 the vector is full, and add_one() adds the mass by itself.
            if (D < 4) table[Cell<D>::MASS] = -1;
        }
    }

    // Adds the rows to the cells. `in` is passed by value: as a reference it would have to be read again after every
    // store, because for all the compiler knows the cells overlap with it.
    template <bool INERTIA>
    UNPOOLED_NOINLINE static void add(const LabelledRows<T> in, const double* table, int64_t k, int64_t copies,
                                   double* cells) {
        const int64_t turn = copies == 1 ? 0 : k * STRIDE;
        int64_t i = 0;
        for (; i + MOST_COPIES <= in.rows; i += MOST_COPIES)
            for (int64_t c = 0; c < MOST_COPIES; ++c) add_one<INERTIA>(in, i + c, table, cells + c * turn);
        for (; i < in.rows; ++i) add_one<INERTIA>(in, i, table, cells + i % MOST_COPIES * turn);
    }

    // Moves the rows with a bit in `words` from the cells of their labels before to those of their labels now. Without
    // weights only: a count goes back to exactly 0, a sum of weights does not.
    UNPOOLED_NOINLINE static void move(const LabelledRows<T> in, const int64_t* before, const uint64_t* words,
                                    const double* table, double* cells) {
        static_assert(!WEIGHTED, "a weight taken out leaves rounding behind");
        for (int64_t begin = 0; begin < in.rows; begin += 64) {
            for (uint64_t bits = words[begin / 64]; bits; bits &= bits - 1) {
                const int64_t row = begin + __builtin_ctzll(bits);
                const int64_t from = before[row] * STRIDE, to = in.labels[row] * STRIDE;
                const V4 x = Cell<D>::row(in.x + row * D, 0, 0);
                store(cells + from, load<V4>(cells + from) - (x - load<V4>(table + from)));
                store(cells + to, load<V4>(cells + to) + (x - load<V4>(table + to)));
                if (D > 3) {
                    cells[from + Cell<D>::MASS] -= 1;
                    cells[to + Cell<D>::MASS] += 1;
                }
            }
        }
    }

    // The cell of cluster j, over its copies.
    static UNPOOLED_INLINE void total(const double* cells, int64_t k, int64_t copies, int64_t j, double* cell) {
        const int64_t size = k * STRIDE;
        const double* c = cells + j * STRIDE;
        for (int64_t half = 0; half < STRIDE; half += 4, c += 4) {
            V4 sum = load<V4>(c);
            if (copies > 1)
                sum = (sum + load<V4>(c + size)) + (load<V4>(c + 2 * size) + load<V4>(c + 3 * size));
            store(cell + half, sum);
        }
    }

private:
    template <bool INERTIA>
    static UNPOOLED_INLINE void add_one(const LabelledRows<T> in, int64_t i, const double* table, double* cells) {
        const int64_t at = in.labels[i] * STRIDE;
        double* cell = cells + at;
        const double w = WEIGHTED ? in.w[i] : 1.0, sqdist = INERTIA ? in.sqdist[i] : 0.0;
        const V4 r = Cell<D>::row(in.x + i * D, sqdist, w) - load<V4>(table + at);
        store(cell, WEIGHTED ? fma(spread<V4>(w), r, load<V4>(cell)) : load<V4>(cell) + r);
        if (WEIGHTED && D > 1) cell[Cell<D>::SQUARES] = fma(w, w, cell[Cell<D>::SQUARES]);
        if (INERTIA && D > 2) cell[Cell<D>::INERTIA] = fma(w, sqdist, cell[Cell<D>::INERTIA]);
        if (D > 3) cell[Cell<D>::MASS] += w;
    }
};

// Calls visit(CellSums<T, d, weighted>()): from numbers at run time to template arguments.
template <class T, class Visit>
UNPOOLED_INLINE void with_cell_sums(int64_t d, bool weighted, Visit&& visit) {
    static_assert(CELL_DIMENSIONS == 4, "use_cells() and these cases are to agree");
    switch (d * 2 + weighted) {
        case 2: return visit(CellSums<T, 1, false>());
        case 3: return visit(CellSums<T, 1, true>());
        case 4: return visit(CellSums<T, 2, false>());
        case 5: return visit(CellSums<T, 2, true>());
        case 6: return visit(CellSums<T, 3, false>());
        case 7: return visit(CellSums<T, 3, true>());
        case 8: return visit(CellSums<T, 4, false>());
        default: return visit(CellSums<T, 4, true>());
    }
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
