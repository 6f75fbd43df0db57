// The nearest centre for d <= 24, any k, any n; weights play no part.
//
// Rows are in the lanes of a vector (W rows side by side), and the centres are compared with them one after the other.
// Distances are sums of squared residuals, so they are exact to rounding wherever the data lie. For d <= 4 the rows
// stay in registers while all centres pass; above that, four centres pass at a time. For d > 24 there is a matrix
// product (centers_in_lanes.hpp), which pays from d of about 50 to 100 on (README.md, last section).
#pragma once
#include "paths.hpp"
#include "simd.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

constexpr int64_t QUAD = 4;  // centres that pass together when the dimensions do not fit the registers

// Transposes rows into lanes: xt[t * ld + i] = x[i][t]. The lanes past the last row repeat it up to a whole vector, so
// that every lane holds a valid row. The rows after these, which will be wanted next, are prefetched on the way.
template <class T>
void to_lanes(const T* x, int64_t rows, int64_t d, double* xt, int64_t ld) {
    const int64_t lanes = round_up(rows, W), ahead = rows * d;
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const T* r = x + i * d;
        for (int64_t t = 0; t < 4 * d; t += 64 / sizeof(T)) __builtin_prefetch(r + ahead + t, 0, 2);
        double* to = xt + i;
        int64_t t = 0;
        for (; t + 4 <= d; t += 4) {
            const V4 a = widen4(r + t), b = widen4(r + d + t), c = widen4(r + 2 * d + t), e = widen4(r + 3 * d + t);
            const V4 ab0 = __builtin_shufflevector(a, b, 0, 4, 2, 6), ab1 = __builtin_shufflevector(a, b, 1, 5, 3, 7);
            const V4 ce0 = __builtin_shufflevector(c, e, 0, 4, 2, 6), ce1 = __builtin_shufflevector(c, e, 1, 5, 3, 7);
            store(to + t * ld, __builtin_shufflevector(ab0, ce0, 0, 1, 4, 5));
            store(to + (t + 1) * ld, __builtin_shufflevector(ab1, ce1, 0, 1, 4, 5));
            store(to + (t + 2) * ld, __builtin_shufflevector(ab0, ce0, 2, 3, 6, 7));
            store(to + (t + 3) * ld, __builtin_shufflevector(ab1, ce1, 2, 3, 6, 7));
        }
        if (t == 0 && d == 2) {
            const V4 a = widen4(r), b = widen4(r + 4);
            store(to, __builtin_shufflevector(a, b, 0, 2, 4, 6));
            store(to + ld, __builtin_shufflevector(a, b, 1, 3, 5, 7));
            continue;
        }
        for (; t < d; ++t)
            store(to + t * ld, V4{static_cast<double>(r[t]), static_cast<double>(r[d + t]),
                                  static_cast<double>(r[2 * d + t]), static_cast<double>(r[3 * d + t])});
    }
    for (; i < lanes; ++i) {
        const T* r = x + smaller(i, rows - 1) * d;
        for (int64_t t = 0; t < d; ++t) xt[t * ld + i] = static_cast<double>(r[t]);
    }
}

// The nearest centre so far of U vectors of rows: its squared distance and its label; with SECOND also the squared
// distance to the second nearest.
template <int U, bool SECOND>
struct NearestSoFar {
    Vd first[U], second[U];
    Vi label[U];

    UNPOOLED_INLINE NearestSoFar() {
        for (int u = 0; u < U; ++u) {
            first[u] = second[u] = spread<Vd>(__builtin_inf());
            label[u] = Vi{};
        }
    }

    // Centre 0. Saves the comparison with infinity.
    UNPOOLED_INLINE void start(int u, Vd sqdist) { first[u] = sqdist; }

    // Centre j, later than all before: a tie keeps the label there is, so that ties go to the lowest index.
    UNPOOLED_INLINE void compare(int u, Vd sqdist, Vi j) {
        label[u] = if_less(sqdist, first[u], j, label[u]);
        if (SECOND) second[u] = lower(higher(sqdist, first[u]), second[u]);
        first[u] = lower(sqdist, first[u]);
    }

    UNPOOLED_INLINE void write(int64_t i, int64_t* labels, double* sqdist, double* runner_up) const {
        for (int u = 0; u < U; ++u) {
            store(labels + i + u * W, label[u]);
            if (sqdist) store(sqdist + i + u * W, first[u]);
            if (SECOND) store(runner_up + i + u * W, second[u]);
        }
    }
};

// d = D <= 4: the U vectors of rows stay in registers; centres (k, D).
template <int D, int U, bool SECOND>
UNPOOLED_INLINE NearestSoFar<U, SECOND> pass_in_registers(const double* xt, int64_t ld, const double* centers,
                                                          int64_t k) {
    NearestSoFar<U, SECOND> so_far;
    Vd x[U][D];
    for (int u = 0; u < U; ++u)
        for (int t = 0; t < D; ++t) x[u][t] = load<Vd>(xt + t * ld + u * W);
    const auto sqdist = [&](int u) UNPOOLED_LAMBDA {
        Vd sum{};
        for (int t = 0; t < D; ++t) {
            const Vd r = x[u][t] - centers[t];
            sum = t ? fma(r, r, sum) : r * r;
        }
        return sum;
    };
    for (int u = 0; u < U; ++u) so_far.start(u, sqdist(u));
    Vi label{};
    for (int64_t j = 1; j < k; ++j) {
        centers += D;
        label += 1;
        for (int u = 0; u < U; ++u) so_far.compare(u, sqdist(u), label);
    }
    return so_far;
}

// d > 4: the rows are read again for every four centres; centres packed by fours, (k / 4, d, 4).
template <int U, bool SECOND>
UNPOOLED_INLINE NearestSoFar<U, SECOND> pass_quads(const double* xt, int64_t ld, int64_t d, const double* quads,
                                              int64_t k) {
    NearestSoFar<U, SECOND> so_far;
    Vi label{};
    for (int64_t j = 0; j < k; j += QUAD) {
        Vd sqdist[QUAD][U];
        for (int q = 0; q < QUAD; ++q)
            for (int u = 0; u < U; ++u) sqdist[q][u] = Vd{};
        for (int64_t t = 0; t < d; ++t, quads += QUAD) {
            for (int q = 0; q < QUAD; ++q) {
                const Vd c = spread<Vd>(quads[q]);
                for (int u = 0; u < U; ++u) {
                    const Vd r = load<Vd>(xt + t * ld + u * W) - c;
                    sqdist[q][u] = fma(r, r, sqdist[q][u]);
                }
            }
        }
        for (int q = 0; q < QUAD; ++q, label += 1)
            for (int u = 0; u < U; ++u) so_far.compare(u, sqdist[q][u], label);
    }
    return so_far;
}

// The nearest centres of `rows` rows, two vectors of rows at a time. D is d where d <= 4, else 0.
template <int D, bool SECOND>
UNPOOLED_NOINLINE void nearest_in_lanes(const double* xt, int64_t ld, int64_t rows, int64_t d, const double* centers,
                                int64_t k, int64_t* labels, double* sqdist, double* runner_up) {
    int64_t i = 0;
    for (; i + W < rows; i += 2 * W) {
        if constexpr (D > 0)
            pass_in_registers<D, 2, SECOND>(xt + i, ld, centers, k).write(i, labels, sqdist, runner_up);
        else
            pass_quads<2, SECOND>(xt + i, ld, d, centers, k).write(i, labels, sqdist, runner_up);
    }
    for (; i < rows; i += W) {
        if constexpr (D > 0)
            pass_in_registers<D, 1, SECOND>(xt + i, ld, centers, k).write(i, labels, sqdist, runner_up);
        else
            pass_quads<1, SECOND>(xt + i, ld, d, centers, k).write(i, labels, sqdist, runner_up);
    }
}

template <bool SECOND>
void nearest_in_lanes(const double* xt, int64_t ld, int64_t rows, int64_t d, const double* centers, int64_t k,
                 int64_t* labels, double* sqdist, double* runner_up) {
    static_assert(CELL_DIMENSIONS == 4, "use_registers() and these cases are to agree");
    switch (d) {
        case 1: return nearest_in_lanes<1, SECOND>(xt, ld, rows, d, centers, k, labels, sqdist, runner_up);
        case 2: return nearest_in_lanes<2, SECOND>(xt, ld, rows, d, centers, k, labels, sqdist, runner_up);
        case 3: return nearest_in_lanes<3, SECOND>(xt, ld, rows, d, centers, k, labels, sqdist, runner_up);
        case 4: return nearest_in_lanes<4, SECOND>(xt, ld, rows, d, centers, k, labels, sqdist, runner_up);
        default: return nearest_in_lanes<0, SECOND>(xt, ld, rows, d, centers, k, labels, sqdist, runner_up);
    }
}

// Centres by fours; the places past the last are infinitely far, and so never nearest.
inline void pack_quads(const double* centers, int64_t k, int64_t d, double* quads) {
    for (int64_t j = 0; j < round_up(k, QUAD); ++j)
        for (int64_t t = 0; t < d; ++t)
            quads[(j / QUAD * d + t) * QUAD + j % QUAD] = j < k ? centers[j * d + t] : __builtin_inf();
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
