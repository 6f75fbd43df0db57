// Scores, distances and sums of residuals for d > 24, any k, any n.
//
// Centres are in the lanes of a vector, and a row's score |c|^2 / 2 - x.c ranks the centres as their distances do: a
// blocked matrix product, two operations per entry instead of three. Rows and centres are first moved by the centre of
// smallest norm, or data far from the origin would lose the ranking to rounding. Where the two best scores are closer
// than rounding can tell, distances decide; those are always sums of squared residuals.
#pragma once
#include "simd.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

constexpr int64_t ROW_GROUP = 4;     // rows of one register tile
constexpr int64_t COLUMN_STEP = 128;  // dimensions at a time: a panel of centres then stays in the first cache

// Adds the products of ROW_GROUP rows with V vectors of centres to their scores.
template <class T, int V>
UNPOOLED_INLINE void tile(const T* rows, int64_t row_step, const T* panel, int64_t panel_step, int64_t columns,
                          T* scores, int64_t score_step) {
    constexpr int L = LANES<T>;
    Vec<T> sum[ROW_GROUP][V];
    for (int r = 0; r < ROW_GROUP; ++r)
        for (int v = 0; v < V; ++v) sum[r][v] = load<Vec<T>>(scores + r * score_step + v * L);
    for (int64_t t = 0; t < columns; ++t) {
        Vec<T> c[V];
        for (int v = 0; v < V; ++v) c[v] = load<Vec<T>>(panel + v * panel_step + t * L);
        for (int r = 0; r < ROW_GROUP; ++r) {
            const Vec<T> x = spread<Vec<T>>(rows[r * row_step + t]);
            for (int v = 0; v < V; ++v) sum[r][v] = fma(x, c[v], sum[r][v]);
        }
    }
    for (int r = 0; r < ROW_GROUP; ++r)
        for (int v = 0; v < V; ++v) store(scores + r * score_step + v * L, sum[r][v]);
}

// Prefetches a stretch of memory bit by bit while the products run.
class Prefetcher {
public:
    Prefetcher(const void* from, int64_t bytes) : at_(static_cast<const char*>(from)), end_(at_ + bytes) {}

    UNPOOLED_INLINE void fetch(int64_t lines) {
        for (; lines > 0 && at_ < end_; --lines, at_ += 64) __builtin_prefetch(at_, 0, 2);
    }

private:
    const char *at_, *end_;
};

// The scores of `rows` packed rows (a multiple of ROW_GROUP) against `vectors` vectors of centres. Panels hold
// the negated centres, (vectors, d, lanes); the scores start from `starts`, (vectors * lanes,).
template <class T>
void score(const T* packed, int64_t rows, int64_t d, const T* panels, const T* starts, int64_t vectors, T* scores,
           Prefetcher ahead) {
    constexpr int L = LANES<T>;
    const int64_t step = vectors * L;
    for (int64_t i = 0; i < rows; ++i) std::memcpy(scores + i * step, starts, static_cast<size_t>(step) * sizeof(T));
    for (int64_t t = 0; t < d; t += COLUMN_STEP) {
        const int64_t columns = smaller(COLUMN_STEP, d - t);
        for (int64_t v = 0; v < vectors;) {
            const int64_t left = vectors - v;
            // never a single vector at the end, if it can be helped: it would leave the units waiting
            const int64_t take = left == 4 ? 2 : smaller<int64_t>(left, 3);
            const T* panel = panels + (v * d + t) * L;
            for (int64_t i = 0; i < rows; i += ROW_GROUP) {
                ahead.fetch(columns * take / 8);
                const T* x = packed + i * d + t;
                T* to = scores + i * step + v * L;
                if (take == 3)
                    tile<T, 3>(x, d, panel, d * L, columns, to, step);
                else if (take == 2)
                    tile<T, 2>(x, d, panel, d * L, columns, to, step);
                else
                    tile<T, 1>(x, d, panel, d * L, columns, to, step);
            }
            v += take;
        }
    }
}

// The place of the lowest of some scores, ties going to the lowest place; its value, and that of the second lowest.
template <class T>
struct Lowest {
    int64_t place;
    T first, second;
};

// Of `count` scores, a whole number of vectors; with SKIP, passing over the place `skip`.
template <bool SKIP, class T>
Lowest<T> lowest(const T* scores, int64_t count, int64_t skip) {
    constexpr int L = LANES<T>;
    const Vec<T> infinite = spread<Vec<T>>(static_cast<T>(__builtin_inf()));
    Vec<T> first = infinite, second = infinite;
    IndexVec<T> place{}, here;
    for (int i = 0; i < L; ++i) here[i] = static_cast<Index<T>>(i);
    const IndexVec<T> skipped = static_cast<Index<T>>(skip) - IndexVec<T>{};
    for (int64_t j = 0; j < count; j += L, here += L) {
        Vec<T> s = load<Vec<T>>(scores + j);
        if (SKIP) s = here == skipped ? infinite : s;
        const IndexVec<T> lower = s < first;
        const Vec<T> loser = lower ? first : s;
        second = loser < second ? loser : second;
        first = lower ? s : first;
        place = lower ? here : place;
    }
    T value[L], other[L];
    Index<T> at[L];
    store(value, first);
    store(other, second);
    store(at, place);
    int win = 0;
    for (int i = 1; i < L; ++i)
        if (value[i] < value[win] || (value[i] == value[win] && at[i] < at[win])) win = i;
    Lowest<T> result{at[win], value[win], other[win]};
    for (int i = 0; i < L; ++i)
        if (i != win && value[i] < result.second) result.second = value[i];
    return result;
}

// Scores closer than this, times |c| (|x| + |c|), may be out of order: d + 2 roundings of each score, and those of row
// and centre to S.
template <class S>
inline double score_rounding(int64_t d) {
    return 2 * static_cast<double>(d + 8) * (sizeof(S) == 4 ? 0x1p-24 : 0x1p-53);
}

template <bool WEIGHTED>
UNPOOLED_INLINE void add_weighted(Vd r, double w, double* to) {
    store(to, WEIGHTED ? fma(spread<Vd>(w), r, load<Vd>(to)) : load<Vd>(to) + r);
}

// sums += w (x - c).
template <bool WEIGHTED, class T>
UNPOOLED_INLINE void add_residual(const T* x, const double* c, int64_t d, double w, double* sums) {
    int64_t t = 0;
    for (; t + W <= d; t += W) add_weighted<WEIGHTED>(widen(x + t) - load<Vd>(c + t), w, sums + t);
    for (; t < d; ++t) sums[t] = fma(w, static_cast<double>(x[t]) - c[t], sums[t]);
}

// What move() does, below, for rows that are float already: in lanes of float.
UNPOOLED_INLINE double move_floats(const float* x, const float* shift, float unit, int64_t d, float* to) {
    constexpr int CHAINS = 4, L = LANES<float>;
    Vf squares[CHAINS];
    for (int i = 0; i < CHAINS; ++i) squares[i] = Vf{};
    const auto at = [&](int64_t t, Vf& sum) UNPOOLED_LAMBDA {
        const Vf r = (load<Vf>(x + t) - load<Vf>(shift + t)) * unit;
        sum = fma(r, r, sum);
        store(to + t, r);
    };
    int64_t t = 0;
    for (; t + CHAINS * L <= d; t += CHAINS * L)
        for (int i = 0; i < CHAINS; ++i) at(t + i * L, squares[i]);
    for (; t + L <= d; t += L) at(t, squares[0]);
    float part[L];
    store(part, (squares[0] + squares[1]) + (squares[2] + squares[3]));
    double sum = 0;
    for (int i = 0; i < L; ++i) sum += static_cast<double>(part[i]);
    for (; t < d; ++t) {
        to[t] = (x[t] - shift[t]) * unit;
        sum += static_cast<double>(to[t]) * static_cast<double>(to[t]);
    }
    return sum * (1 + static_cast<double>(d) * 0x1p-23) + 0x1p-100;
}

// to = (x - shift) unit, rounded to S; gives its squared norm, or a little more.
template <class T, class S>
UNPOOLED_INLINE double move(const T* x, const T* shift, double unit, int64_t d, S* to) {
    if constexpr (sizeof(T) == 4 && sizeof(S) == 4)
        if (unit > 0x1p-60 && unit < 0x1p60) return move_floats(x, shift, static_cast<float>(unit), d, to);
    constexpr int CHAINS = 4;
    Vd squares[CHAINS];
    for (int i = 0; i < CHAINS; ++i) squares[i] = Vd{};
    const auto at = [&](int64_t t, Vd& sum) UNPOOLED_LAMBDA {
        const Vd r = (widen(x + t) - widen(shift + t)) * unit;
        sum = fma(r, r, sum);
        if constexpr (sizeof(S) == 8)
            store(to + t, r);
        else
            store(to + t, __builtin_convertvector(r, typename VectorOf<S, W>::type));
    };
    int64_t t = 0;
    for (; t + CHAINS * W <= d; t += CHAINS * W)
        for (int i = 0; i < CHAINS; ++i) at(t + i * W, squares[i]);
    for (; t + W <= d; t += W) at(t, squares[0]);
    double sum = across((squares[0] + squares[1]) + (squares[2] + squares[3]));
    for (; t < d; ++t) {
        const double r = (static_cast<double>(x[t]) - static_cast<double>(shift[t])) * unit;
        to[t] = static_cast<S>(r);
        sum = fma(r, r, sum);
    }
    return sum;
}

template <class T>
UNPOOLED_INLINE double squared_norm(const T* x, int64_t d) {
    constexpr int CHAINS = 4;
    Vd squares[CHAINS];
    for (int i = 0; i < CHAINS; ++i) squares[i] = Vd{};
    int64_t t = 0;
    for (; t + CHAINS * W <= d; t += CHAINS * W)
        for (int i = 0; i < CHAINS; ++i) {
            const Vd r = widen(x + t + i * W);
            squares[i] = fma(r, r, squares[i]);
        }
    double sum = across((squares[0] + squares[1]) + (squares[2] + squares[3]));
    for (; t < d; ++t) sum = fma(static_cast<double>(x[t]), static_cast<double>(x[t]), sum);
    return sum;
}

// |x - c|^2 and, with ADD, sums += w (x - c) on the way.
template <bool ADD, bool WEIGHTED, class T>
UNPOOLED_INLINE double residual(const T* x, const double* c, int64_t d, double w, double* sums) {
    constexpr int CHAINS = 4;  // sums of squares side by side, so that none waits for its own last one
    Vd squares[CHAINS];
    for (int i = 0; i < CHAINS; ++i) squares[i] = Vd{};
    int64_t t = 0;
    for (; t + CHAINS * W <= d; t += CHAINS * W) {
        for (int i = 0; i < CHAINS; ++i) {
            const Vd r = widen(x + t + i * W) - load<Vd>(c + t + i * W);
            squares[i] = fma(r, r, squares[i]);
            if (ADD) add_weighted<WEIGHTED>(r, w, sums + t + i * W);
        }
    }
    for (; t + W <= d; t += W) {
        const Vd r = widen(x + t) - load<Vd>(c + t);
        squares[0] = fma(r, r, squares[0]);
        if (ADD) add_weighted<WEIGHTED>(r, w, sums + t);
    }
    double sum = across((squares[0] + squares[1]) + (squares[2] + squares[3]));
    for (; t < d; ++t) {
        const double r = static_cast<double>(x[t]) - c[t];
        sum = fma(r, r, sum);
        if (ADD) sums[t] = fma(w, r, sums[t]);
    }
    return sum;
}

template <class T>
UNPOOLED_INLINE double sqdist(const T* x, const double* c, int64_t d) {
    if (d >= W) return residual<false, false>(x, c, d, 1.0, nullptr);
    double sum = 0;
    for (int64_t t = 0; t < d; ++t) {
        const double r = static_cast<double>(x[t]) - c[t];
        sum = fma(r, r, sum);
    }
    return sum;
}

// The same to C centres at once, which are read together; each sum is in the order of sqdist().
template <int C, class T>
UNPOOLED_INLINE void sqdists(const T* x, const double* centers, int64_t d, double* to, int64_t step) {
    constexpr int CHAINS = 4;
    Vd squares[C][CHAINS];
    for (int c = 0; c < C; ++c)
        for (int i = 0; i < CHAINS; ++i) squares[c][i] = Vd{};
    int64_t t = 0;
    for (; t + CHAINS * W <= d; t += CHAINS * W)
        for (int i = 0; i < CHAINS; ++i) {
            const Vd here = widen(x + t + i * W);
            for (int c = 0; c < C; ++c) {
                const Vd r = here - load<Vd>(centers + c * d + t + i * W);
                squares[c][i] = fma(r, r, squares[c][i]);
            }
        }
    for (; t + W <= d; t += W)
        for (int c = 0; c < C; ++c) {
            const Vd r = widen(x + t) - load<Vd>(centers + c * d + t);
            squares[c][0] = fma(r, r, squares[c][0]);
        }
    for (int c = 0; c < C; ++c) {
        double sum = across((squares[c][0] + squares[c][1]) + (squares[c][2] + squares[c][3]));
        for (int64_t rest = t; rest < d; ++rest) {
            const double r = static_cast<double>(x[rest]) - centers[c * d + rest];
            sum = fma(r, r, sum);
        }
        to[c * step] = sum;
    }
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
