// The nearest centre for 4 < d <= 128 in kernels that go over many rows: scores in float, with rows in the lanes.
//
// A score |c|^2 / 2 - x.c ranks the centres as their distances do, with one operation per entry instead of two, and
// float has twice as many lanes. Rows and centres are moved and scaled as in scores.hpp. Where the two best scores of a
// row are closer than rounding can tell, its distances in double decide, by the same operations in the same order as
// where all rows are compared by distances: labels, and so all sums, are the same.
#pragma once
#include "rows_in_lanes.hpp"
#include "scores.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

template <class T>
using LaneCenters = ScoredCenters<T, float, QUAD>;

UNPOOLED_INLINE F4 moved4(const float* x, const float* shift, double unit) {
    return (load<F4>(x) - load<F4>(shift)) * static_cast<float>(unit);
}
UNPOOLED_INLINE F4 moved4(const double* x, const double* shift, double unit) {
    return __builtin_convertvector((load<V4>(x) - load<V4>(shift)) * unit, F4);
}

// Moves rows, and transposes them into lanes of float: xt[t * ld + i]. The lanes past the last row repeat it up to
// `lanes` of them. The rows after these, which will be wanted next, are prefetched on the way.
template <class T>
void to_moved_lanes(const T* x, int64_t rows, int64_t d, const T* shift, double unit, float* xt, int64_t ld,
                    int64_t lanes) {
    const int64_t ahead = rows * d;
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const T* r = x + i * d;
        for (int64_t t = 0; t < 4 * d; t += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(r + ahead + t, 0, 2);
        float* to = xt + i;
        int64_t t = 0;
        for (; t + 4 <= d; t += 4) {
            const F4 a = moved4(r + t, shift + t, unit), b = moved4(r + d + t, shift + t, unit);
            const F4 c = moved4(r + 2 * d + t, shift + t, unit), e = moved4(r + 3 * d + t, shift + t, unit);
            const F4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            const F4 ce0 = __builtin_shufflevector(c, e, 0, 4, 1, 5), ce1 = __builtin_shufflevector(c, e, 2, 6, 3, 7);
            store(to + t * ld, __builtin_shufflevector(ab0, ce0, 0, 1, 4, 5));
            store(to + (t + 1) * ld, __builtin_shufflevector(ab0, ce0, 2, 3, 6, 7));
            store(to + (t + 2) * ld, __builtin_shufflevector(ab1, ce1, 0, 1, 4, 5));
            store(to + (t + 3) * ld, __builtin_shufflevector(ab1, ce1, 2, 3, 6, 7));
        }
        for (; t < d; ++t)
            for (int64_t j = 0; j < 4; ++j)
                to[t * ld + j] = static_cast<float>((r[j * d + t] - shift[t]) * static_cast<T>(unit));
    }
    for (; i < lanes; ++i) {
        const T* r = x + smaller(i, rows - 1) * d;
        for (int64_t t = 0; t < d; ++t) xt[t * ld + i] = static_cast<float>((r[t] - shift[t]) * static_cast<T>(unit));
    }
}

// U vectors of rows against all centres: the two lowest scores, and the place of the lowest.
template <int U>
struct LowestScores {
    Vf first[U], second[U];
    IndexVec<float> label[U];
};

template <int U>
UNPOOLED_INLINE LowestScores<U> pass_scores(const float* xt, int64_t ld, int64_t d, const float* quads,
                                            const float* starts, int64_t padded) {
    LowestScores<U> found;
    for (int u = 0; u < U; ++u) {
        found.first[u] = found.second[u] = spread<Vf>(__builtin_inff());
        found.label[u] = IndexVec<float>{};
    }
    IndexVec<float> here{};
    for (int64_t j = 0; j < padded; j += QUAD) {
        Vf score[QUAD][U];
        for (int q = 0; q < QUAD; ++q)
            for (int u = 0; u < U; ++u) score[q][u] = spread<Vf>(starts[j + q]);
        for (int64_t t = 0; t < d; ++t, quads += QUAD) {
            Vf x[U];
            for (int u = 0; u < U; ++u) x[u] = load<Vf>(xt + t * ld + u * LANES<float>);
            for (int q = 0; q < QUAD; ++q) {
                const Vf c = spread<Vf>(quads[q]);
                for (int u = 0; u < U; ++u) score[q][u] = fma(c, x[u], score[q][u]);
            }
        }
        for (int q = 0; q < QUAD; ++q, here += 1)
            for (int u = 0; u < U; ++u) {
                const Vf s = score[q][u];
                found.label[u] = s < found.first[u] ? here : found.label[u];
                found.second[u] = lower(higher(s, found.first[u]), found.second[u]);
                found.first[u] = lower(s, found.first[u]);
            }
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

// A block of rows in lanes of float.
template <class T>
class LaneScores {
public:
    static constexpr int64_t L = LANES<float>;

    void load(const LaneCenters<T>& c, int64_t d, const T* x, int64_t rows, int64_t most) {
        ld_ = round_up(most, 2 * L);
        lanes_.resize(ld_ * d);
        norms_.resize(ld_);
        to_moved_lanes(x, rows, d, c.shift.get(), c.unit, lanes_.get(), ld_, round_up(rows, 2 * L));
        for (int64_t i = 0; i < rows; i += L) {
            Vf sum{};
            for (int64_t t = 0; t < d; ++t) {
                const Vf r = UNPOOLED_ISA::load<Vf>(lanes_.get() + t * ld_ + i);
                sum = fma(r, r, sum);
            }
            store(norms_.get() + i, sum);
        }
    }

    // Labels of the rows; measured(i) gives that of row i where its scores cannot tell.
    template <class Measured>
    void nearest(const LaneCenters<T>& c, int64_t d, int64_t rows, int64_t set, int64_t* labels,
                 Measured&& measured) const {
        const float* quads = c.panels.get() + set * c.padded * d;
        const float* starts = c.starts.get() + set * c.padded;
        // |c| (|x| + |c|), of scores.hpp's doubt, is at most 1.5 |c|^2 + .5 |x|^2; the norms are rounded too, and below
        // 2^-100 float fades. A row too far away for float has no scores that are more than infinity apart.
        const double unit = 1.01 * score_rounding<float>(d);
        const Vf reach = spread<Vf>(static_cast<float>(1.5 * unit * c.reach[set] * c.reach[set] + 0x1p-100));
        const Vf share = spread<Vf>(static_cast<float>(0.5 * unit));
        for (int64_t i = 0; i < rows; i += 2 * L) {
            const LowestScores<2> found = pass_scores<2>(lanes_.get() + i, ld_, d, quads, starts, c.padded);
            for (int u = 0; u < 2; ++u) {
                const int64_t at = i + u * L;
                Index<float> label[L], clear[L];
                store(label, found.label[u]);
                const Vf doubt = fma(share, UNPOOLED_ISA::load<Vf>(norms_.get() + at), reach);
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
    Buffer<float> lanes_, norms_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
