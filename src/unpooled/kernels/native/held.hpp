// Up to four dimensions a row with all that it adds is one vector of four, or two. The centre of its cluster, laid
// out alike, is subtracted, and the rest is added to the cluster's cell.
#pragma once
#include "few.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

constexpr int64_t MOST_HELD = 4;

// Consecutive rows often share a cluster, and each would wait for the sum of the one before. They take turns at so
// many copies of the cells instead. For a handful of rows that is not worth clearing them.
constexpr int64_t MOST_COPIES = 4;
inline int64_t copies_for(int64_t rows) { return rows < 32 ? 1 : MOST_COPIES; }

constexpr int64_t cell_stride(int64_t d, bool weighted) { return d == 1 || (d == 2 && !weighted) ? 4 : 8; }

// Where things are in a cell; the residuals come first.
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
struct Labelled {
    const T* x;
    int64_t rows;
    const int64_t* labels;
    const double *sqdist, *w;
};

template <class T, int D, bool WEIGHTED>
struct Held {
    static constexpr int64_t STRIDE = cell_stride(D, WEIGHTED);

    static void lay_out(const double* centers, int64_t k, double* table) {
        for (int64_t j = 0; j < k; ++j, centers += D, table += STRIDE) {
            for (int64_t t = 0; t < STRIDE; ++t) table[t] = t < D ? centers[t] : 0.0;
            if (D < 4) table[Cell<D>::MASS] = -1;  // x - c then counts the row
        }
    }

    // By value: the sums could otherwise overwrite what `in` points to, for all the compiler knows.
    template <bool INERTIA>
    UNPOOLED_APART static void add(const Labelled<T> in, const double* table, int64_t k, int64_t copies,
                                   double* cells) {
        const int64_t turn = copies == 1 ? 0 : k * STRIDE;
        int64_t i = 0;
        for (; i + MOST_COPIES <= in.rows; i += MOST_COPIES)
            for (int64_t c = 0; c < MOST_COPIES; ++c) add_one<INERTIA>(in, i + c, table, cells + c * turn);
        for (; i < in.rows; ++i) add_one<INERTIA>(in, i, table, cells + i % MOST_COPIES * turn);
    }

    // Takes the rows with a bit in `words` out of the cells of their labels before, and adds them to those of their
    // labels now. Not with weights: of those only a count comes out exact.
    UNPOOLED_APART static void move(const Labelled<T> in, const int64_t* before, const uint64_t* words,
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
    static UNPOOLED_INLINE void add_one(const Labelled<T> in, int64_t i, const double* table, double* cells) {
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

// Calls visit(Held<...>) for the dimension and the kind of weights at hand.
template <class T, class Visit>
UNPOOLED_INLINE void with_held(int64_t d, bool weighted, Visit&& visit) {
    switch (d * 2 + weighted) {
        case 2: return visit(Held<T, 1, false>());
        case 3: return visit(Held<T, 1, true>());
        case 4: return visit(Held<T, 2, false>());
        case 5: return visit(Held<T, 2, true>());
        case 6: return visit(Held<T, 3, false>());
        case 7: return visit(Held<T, 3, true>());
        case 8: return visit(Held<T, 4, false>());
        default: return visit(Held<T, 4, true>());
    }
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
