// The nearest centre for d > 4 in kernels that go over many rows: scores in float, with rows in the lanes.
//
// A score |c|^2 / 2 - x.c ranks the centres as their distances do, with one operation per entry instead of two, and
// float has twice as many lanes. Rows and centres are moved and scaled as in scores.hpp. Where the two best scores of a
// row are closer than rounding can tell, its distances in double decide, by the same operations in the same order as
// where all rows are compared by distances: labels, and so all sums, are the same.
#pragma once
#include "rows_in_lanes.hpp"
#include "scores.hpp"
#include "transpose.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

constexpr int64_t STRIPE = 128;  // columns whose products are added up first, so that fewer roundings follow each other

// The longest chain of additions in a score.
inline int64_t chain(int64_t d) { return smaller(d, STRIPE) + (d + STRIPE - 1) / STRIPE; }

template <class T>
using LaneCenters = ScoredCenters<T, float, QUAD>;

// Four columns of rows 0, 4, 8, ... from x on, moved, side by side in a vector of L.
template <int L>
UNPOOLED_INLINE auto moved_fours(const float* x, int64_t d, const float* shift, double unit) {
    return (fours<L>(x, d) - fours<L>(shift, 0)) * static_cast<float>(unit);
}
template <int L>
UNPOOLED_INLINE auto moved_fours(const double* x, int64_t d, const double* shift, double unit) {
    if constexpr (L == 4) {
        return __builtin_convertvector((load<V4>(x) - load<V4>(shift)) * unit, F4);
    } else if constexpr (L == 8 && W == 8) {
        const V4 by = load<V4>(shift);
        return __builtin_convertvector((twice(load<V4>(x), load<V4>(x + 4 * d)) - twice(by, by)) * unit,
                                       VectorOf<float, 8>::type);
    } else {
        return twice(moved_fours<L / 2>(x, d, shift, unit), moved_fours<L / 2>(x + L / 2 * d, d, shift, unit));
    }
}

// Moves rows, and transposes them into lanes of float: xt[t * ld + i]; their squared norms go to `norms`. The lanes past
// the last row repeat it up to `lanes` of them, a whole number of vectors. A vector of rows is moved at a time, so each
// line of xt is written once, and as many rows are read side by side.
template <class T>
void to_moved_lanes(const T* x, int64_t rows, int64_t d, const T* shift, double unit, float* xt, int64_t ld,
                    int64_t lanes, float* norms) {
    constexpr int L = LANES<float>, LINES = 4 * L * sizeof(T) / 64;  // of memory in four columns
    for (int64_t i = 0; i < lanes; i += L) {
        float* to = xt + i;
        Vf sum{};
        int64_t t = 0;
        if (i + L <= rows) {
            const T* r = x + i * d;
            const char* next = reinterpret_cast<const char*>(r + rows * d);
            for (; t + 4 <= d; t += 4) {
                for (int line = 0; line < LINES; ++line, next += 64) __builtin_prefetch(next, 0, 2);
                const Vf a = moved_fours<L>(r + t, d, shift + t, unit), b = moved_fours<L>(r + d + t, d, shift + t, unit);
                const Vf c = moved_fours<L>(r + 2 * d + t, d, shift + t, unit);
                const Vf e = moved_fours<L>(r + 3 * d + t, d, shift + t, unit);
                each_column(a, b, c, e, [&](int64_t j, Vf column) UNPOOLED_LAMBDA {
                    store(to + (t + j) * ld, column);
                    sum = fma(column, column, sum);
                });
            }
        }
        for (; t < d; ++t) {
            for (int64_t j = 0; j < L; ++j)
                to[t * ld + j] = static_cast<float>((x[smaller(i + j, rows - 1) * d + t] - shift[t]) * static_cast<T>(unit));
            const Vf column = load<Vf>(to + t * ld);
            sum = fma(column, column, sum);
        }
        store(norms + i, sum);
    }
}

// U vectors of rows against all centres: the two lowest scores, and the place of the lowest.
template <int U>
struct LowestScores {
    Vf first[U], second[U];
    IndexVec<float> label[U];
};

// Products of U vectors of rows with Q times four centres over some columns, added to their scores so far. The panels
// of four centres each are `step` apart.
template <int U, int Q>
UNPOOLED_INLINE void add_products(const float* xt, int64_t ld, int64_t columns, const float* quads, int64_t step,
                                  Vf (&score)[Q * QUAD][U]) {
    for (int64_t t = 0; t < columns; ++t, quads += QUAD) {
        Vf x[U];
        for (int u = 0; u < U; ++u) x[u] = load<Vf>(xt + t * ld + u * LANES<float>);
        for (int q = 0; q < Q * QUAD; ++q) {
            const Vf c = spread<Vf>(quads[q / QUAD * step + q % QUAD]);
            for (int u = 0; u < U; ++u) score[q][u] = fma(c, x[u], score[q][u]);
        }
    }
}

// The two lowest so far, with Q times four centres more, of which `here` is the first.
template <int U, int Q>
UNPOOLED_INLINE void compare_scores(const Vf (&score)[Q * QUAD][U], IndexVec<float>& here, LowestScores<U>& found) {
    for (int q = 0; q < Q * QUAD; ++q, here += 1)
        for (int u = 0; u < U; ++u) {
            const Vf s = score[q][u];
            found.label[u] = s < found.first[u] ? here : found.label[u];
            found.second[u] = lower(higher(s, found.first[u]), found.second[u]);
            found.first[u] = lower(s, found.first[u]);
        }
}

// Q times four centres from number j on, over the columns [begin, end) of d. Products of a stripe of columns are added
// up in registers, then to what earlier stripes left in `sums`; after the last stripe scores are compared.
template <int U, int Q>
UNPOOLED_INLINE void pass_stripe(const float* xt, int64_t ld, int64_t d, int64_t begin, int64_t end, const float* quads,
                                 const float* starts, float* sums, IndexVec<float>& here, LowestScores<U>& found) {
    constexpr int C = Q * QUAD;
    constexpr int64_t L = LANES<float>;
    Vf score[C][U];
    for (int q = 0; q < C; ++q)
        for (int u = 0; u < U; ++u) score[q][u] = begin == 0 ? spread<Vf>(starts[q]) : Vf{};
    add_products<U, Q>(xt + begin * ld, ld, end - begin, quads + begin * QUAD, d * QUAD, score);
    if (begin > 0)
        for (int q = 0; q < C; ++q)
            for (int u = 0; u < U; ++u) score[q][u] = score[q][u] + load<Vf>(sums + (q * U + u) * L);
    if (end == d) return compare_scores<U, Q>(score, here, found);
    for (int q = 0; q < C; ++q)
        for (int u = 0; u < U; ++u) store(sums + (q * U + u) * L, score[q][u]);
}

// All centres: the scores of those before the last stripe are in `sums`, (padded, U vectors).
template <int U>
UNPOOLED_INLINE LowestScores<U> pass_scores(const float* xt, int64_t ld, int64_t d, const float* quads,
                                            const float* starts, int64_t padded, float* sums) {
    constexpr int MORE = VECTOR_BYTES == 64 ? 3 : 1;  // as many as the registers take
    LowestScores<U> found;
    for (int u = 0; u < U; ++u) {
        found.first[u] = found.second[u] = spread<Vf>(__builtin_inff());
        found.label[u] = IndexVec<float>{};
    }
    IndexVec<float> here{};
    for (int64_t begin = 0; begin < d; begin += STRIPE) {
        const int64_t end = smaller(begin + STRIPE, d);
        int64_t j = 0;
        const auto pass = [&](auto q) UNPOOLED_LAMBDA {
            constexpr int Q = decltype(q)::value;
            pass_stripe<U, Q>(xt, ld, d, begin, end, quads + j * d, starts + j, sums + j * U * LANES<float>, here, found);
            j += Q * QUAD;
        };
        while (j + MORE * QUAD <= padded) pass(Number<MORE>());
        while (j < padded) pass(Number<1>());
    }
    return found;
}

// Squared distances of rows to the centres of their labels, each a sum over t from first to last, as in the lanes of
// rows_in_lanes.hpp.
template <class T>
void own_sqdists(const T* x, int64_t rows, int64_t d, const double* centers, const int64_t* labels, double* to) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const T* r = x + i * d;
        const double* c[4];
        for (int j = 0; j < 4; ++j) c[j] = centers + labels[i + j] * d;
        V4 sum{};
        const auto add = [&](V4 v) UNPOOLED_LAMBDA { sum = fma(v, v, sum); };
        int64_t t = 0;
        for (; t + 4 <= d; t += 4) {
            V4 v[4];
            for (int j = 0; j < 4; ++j) v[j] = widen4(r + j * d + t) - load<V4>(c[j] + t);
            const V4 a0 = __builtin_shufflevector(v[0], v[1], 0, 4, 2, 6);
            const V4 a1 = __builtin_shufflevector(v[0], v[1], 1, 5, 3, 7);
            const V4 b0 = __builtin_shufflevector(v[2], v[3], 0, 4, 2, 6);
            const V4 b1 = __builtin_shufflevector(v[2], v[3], 1, 5, 3, 7);
            add(__builtin_shufflevector(a0, b0, 0, 1, 4, 5));
            add(__builtin_shufflevector(a1, b1, 0, 1, 4, 5));
            add(__builtin_shufflevector(a0, b0, 2, 3, 6, 7));
            add(__builtin_shufflevector(a1, b1, 2, 3, 6, 7));
        }
        for (; t < d; ++t) {
            V4 v;
            for (int j = 0; j < 4; ++j) v[j] = static_cast<double>(r[j * d + t]) - c[j][t];
            add(v);
        }
        store(to + i, sum);
    }
    for (; i < rows; ++i) {
        const double* c = centers + labels[i] * d;
        double sum = 0;
        for (int64_t t = 0; t < d; ++t) {
            const double v = static_cast<double>(x[i * d + t]) - c[t];
            sum = fma(v, v, sum);
        }
        to[i] = sum;
    }
}

// Where the moved rows of a block go, or are already.
struct MovedLanes {
    float *lanes, *norms;  // (d, ld), (ld): squared
    bool ready;
};

// Rows of a block in lanes: whole pairs of vectors.
inline int64_t lanes_of(int64_t rows) { return round_up(rows, 2 * LANES<float>); }

// The moved rows of a site, for all its steps while the shift is the same: they are moved once. Blocks have `most` rows.
class KeptRows {
public:
    void start(int64_t n, int64_t d, int64_t most) {
        d_ = d;
        most_ = most;
        ld_ = lanes_of(most);
        const int64_t blocks = (n + most - 1) / most;
        lanes_.resize(blocks * ld_ * d);
        norms_.resize(blocks * ld_);
        for (int64_t b = 0; b < blocks; ++b) norms_[b * ld_] = -1;
        placed_ = false;
    }
    // What to move centres by: at first their mean, then the same for as long as the rows are kept.
    Shift shift() {
        const bool placed = placed_;
        placed_ = true;
        return placed ? Shift::SAME : Shift::MEAN;
    }
    MovedLanes from(int64_t row) {
        const int64_t at = row / most_ * ld_;
        return {lanes_.get() + at * d_, norms_.get() + at, !(norms_[at] < 0)};
    }

private:
    int64_t d_ = 0, most_ = 1, ld_ = 0;
    bool placed_ = false;
    Buffer<float> lanes_, norms_;
};

// A block of rows in lanes of float.
template <class T>
class LaneScores {
public:
    static constexpr int64_t L = LANES<float>;

    // `kept`: where the rows are kept, if they are.
    void load(const LaneCenters<T>& c, int64_t d, const T* x, int64_t rows, int64_t most, const MovedLanes* kept) {
        ld_ = lanes_of(most);
        if (!kept) {
            own_lanes_.resize(ld_ * d);
            own_norms_.resize(ld_);
        }
        const MovedLanes at = kept ? *kept : MovedLanes{own_lanes_.get(), own_norms_.get(), false};
        lanes_ = at.lanes;
        norms_ = at.norms;
        if (!at.ready) to_moved_lanes(x, rows, d, c.shift.get(), c.unit, at.lanes, ld_, lanes_of(rows), at.norms);
    }

    // Labels of the rows; measured(i) gives that of row i where its scores cannot tell.
    template <class Measured>
    void nearest(const LaneCenters<T>& c, int64_t d, int64_t rows, int64_t set, int64_t* labels,
                 Measured&& measured) {
        if (d > STRIPE) sums_.resize(c.padded * 2 * L);
        const float* quads = c.panels.get() + set * c.padded * d;
        const float* starts = c.starts.get() + set * c.padded;
        // |c| (|x| + |c|), of scores.hpp's doubt, is at most 1.5 |c|^2 + .5 |x|^2; the norms are rounded too, and below
        // 2^-100 float fades. A row too far away for float has no scores that are more than infinity apart.
        const double unit = 1.01 * score_rounding<float>(chain(d));
        const Vf reach = spread<Vf>(static_cast<float>(1.5 * unit * c.reach[set] * c.reach[set] + 0x1p-100));
        const Vf share = spread<Vf>(static_cast<float>(0.5 * unit));
        for (int64_t i = 0; i < rows; i += 2 * L) {
            const LowestScores<2> found = pass_scores<2>(lanes_ + i, ld_, d, quads, starts, c.padded, sums_.get());
            for (int u = 0; u < 2; ++u) {
                const int64_t at = i + u * L;
                Index<float> label[L], clear[L];
                store(label, found.label[u]);
                const Vf doubt = fma(share, UNPOOLED_ISA::load<Vf>(norms_ + at), reach);
                const IndexVec<float> told = found.second[u] - found.first[u] > doubt;
                store(clear, told);
                const int64_t count = smaller(L, rows - at);
                for (int64_t j = 0; j < count; ++j) labels[at + j] = label[j];
                if (!any((Vi)~told)) continue;
                for (int64_t j = 0; j < count; ++j)
                    if (!clear[j]) labels[at + j] = measured(at + j);
            }
        }
    }

private:
    int64_t ld_ = 0;
    const float *lanes_ = nullptr, *norms_ = nullptr;
    Buffer<float> own_lanes_, own_norms_, sums_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
