// A block of rows against sets of centres, as fuzzy c-means needs it, for any d and k, with weights or without: all
// squared distances, from them memberships, and the weighted sums. d <= 24: rows in lanes, distances from residuals (as
// rows_in_lanes.hpp). d > 24: distances from a blocked product (as centers_in_lanes.hpp), and those so small that they
// cancel are taken again from residuals; data far from zero are first moved by the centre of smallest norm. Unlike in
// assign.hpp every distance counts, not the smallest alone, so float32 rows are computed as doubles.
#pragma once
#include "assign.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

constexpr double FARTHEST = 1.7976931348623157e308;  // squared distances stop here, so that 0 times them is 0
constexpr double CANCELLED = 1.0 / 64;               // of |x|^2 + |c|^2, below which a distance is taken again
constexpr int64_t STATISTICS = 4;                    // mass, rows, squares, inertia
constexpr int MOST_TILED = 5;                        // centres that are summed together

// u is proportional to the squared distance to the power -power, where power = 1 / (m - 1).
struct Fuzzifier {
    double m, power;
    int64_t whole;  // the power, if it is a small whole number, else 0

    Fuzzifier(double m, double power)
        : m(m), power(power), whole(power <= 64 && power == static_cast<double>(static_cast<int64_t>(power))
                                        ? static_cast<int64_t>(power)
                                        : 0) {}

    // ratio^power: by repeated squaring where the power is whole.
    UNPOOLED_INLINE Vd raise(Vd ratio) const {
        if (whole) {
            Vd result = spread<Vd>(1.0), square = ratio;
            for (int64_t n = whole;; square *= square) {
                if (n & 1) result *= square;
                if (!(n >>= 1)) return result;
            }
        }
        for (int i = 0; i < W; ++i) ratio[i] = __builtin_pow(ratio[i], power);
        return ratio;
    }

    // total^(1 - m), by which u^m follows from u (see reference_fuzzy.py).
    UNPOOLED_INLINE Vd cool(Vd total) const {
        if (whole == 1) return 1.0 / total;
        for (int i = 0; i < W; ++i) total[i] = __builtin_pow(total[i], 1 - m);
        return total;
    }
};

// R sets of k centres, in the layout their dimension asks for. Shared by all workers.
class FuzzyCenters {
public:
    int64_t sets, k, d;
    bool rows_in_lanes;
    int64_t padded;  // places per set
    int64_t width;   // of a moved row, whole vectors
    const double* raw;
    Buffer<double> quads;                            // d <= 24: by fours
    Buffer<double> origin, moved;                    // d > 24: (width,), and (sets, k, width) centres moved by it
    bool at_zero = true;                             // d > 24: is the origin zero, so that rows are used as they are?
    Buffer<double> panels, starts;                   // d > 24: as score() takes them

    FuzzyCenters(const double* centers, int64_t sets, int64_t k, int64_t d)
        : sets(sets), k(k), d(d), rows_in_lanes(use_lanes(d)), padded(round_up(k, rows_in_lanes ? QUAD : W)),
          width(round_up(d, 2 * W)), raw(centers) {
        if (rows_in_lanes) {
            quads.resize(sets * padded * d);
            for (int64_t r = 0; r < sets; ++r) pack_quads(set(r), k, d, quads.get() + r * padded * d);
            return;
        }
        choose_origin();
        moved.resize(larger<int64_t>(sets * k * width, 1));
        panels.resize(larger<int64_t>(sets * padded * width, 1));
        starts.resize(larger<int64_t>(sets * padded, 1));
        clear(moved.get(), sets * k * width);
        clear(panels.get(), sets * padded * width);
        clear(starts.get(), sets * padded);
        for (int64_t r = 0; r < sets; ++r)
            for (int64_t j = 0; j < k; ++j) {
                const int64_t place = r * padded + j;
                double* to = moved.get() + (r * k + j) * width;
                double* panel = panels.get() + place / W * width * W + place % W;
                double half = 0;
                for (int64_t t = 0; t < d; ++t) {
                    to[t] = set(r)[j * d + t] - origin[t];
                    panel[t * W] = -to[t];
                    half = fma(0.5 * to[t], to[t], half);
                }
                starts[place] = half;
            }
    }

    const double* set(int64_t r) const { return raw + r * k * d; }

private:
    void choose_origin() {
        origin.resize(width);
        clear(origin.get(), width);
        const double* nearest = nullptr;
        double least = __builtin_inf();
        for (int64_t j = 0; j < sets * k; ++j) {
            double norm = 0;
            for (int64_t t = 0; t < d; ++t) norm = fma(raw[j * d + t], raw[j * d + t], norm);
            if (norm < least) {
                least = norm;
                nearest = raw + j * d;
            }
        }
        double farthest = 0;  // of the other centres from that one
        for (int64_t j = 0; nearest && j < sets * k; ++j) farthest = larger(farthest, sqdist(raw + j * d, nearest, d));
        at_zero = !nearest || least <= 16 * farthest;
        if (!at_zero) copy(origin.get(), nearest, d);
    }
};

template <class T>
class FuzzyBlock {
public:
    explicit FuzzyBlock(const FuzzyCenters& c)
        : ld_(block_rows(c.d)), k_(c.k), sq_(c.padded * ld_), share_(c.k * ld_), ratio_(c.k * ld_), weight_(ld_),
          scale_(ld_), cool_(ld_), rows_(ld_ * (c.rows_in_lanes ? c.d : c.width)) {
        if (c.rows_in_lanes) return;
        norms_.resize(ld_);
        scores_.resize(ld_ * c.padded);
    }

    // At most block_rows(d) rows; w may be null. The lanes past the last row repeat it, with weight 0.
    void load(const FuzzyCenters& c, const T* x, int64_t rows, const double* w) {
        x_ = x;
        count_ = rows;
        lanes_ = round_up(rows, W);
        for (int64_t i = 0; i < lanes_; ++i) weight_[i] = i >= rows ? 0.0 : w ? w[i] : 1.0;
        if (c.rows_in_lanes) {
            to_lanes(x, rows, c.d, rows_.get(), ld_);
            return;
        }
        y_ = c.at_zero && rows == ld_ && c.width == c.d ? in_place(x) : nullptr;
        if (y_) {
            for (int64_t i = 0; i < rows; ++i) norms_[i] = norm(y_ + i * c.d, c.d, rows * c.d);
            return;
        }
        y_ = rows_.get();
        for (int64_t i = 0; i < lanes_; ++i)
            norms_[i] = move(x + smaller(i, rows - 1) * c.d, c.origin.get(), c.d, c.width, rows_.get() + i * c.width);
    }

    // All squared distances to the centres of a set, and each row's shares of them.
    void weigh(const FuzzyCenters& c, int64_t set, const Fuzzifier& f) {
        if (c.rows_in_lanes)
            distances_in_lanes(c, set);
        else
            distances_by_score(c, set);
        if (f.whole == 1)
            share<true>(f);
        else
            share<false>(f);
    }

    // After weigh(): adds to the statistics (k, STATISTICS, W) and the sums of a set; for d <= 24 those are (k, d, W)
    // of w u^m (x - c), above (k, width) of w u^m (x - origin).
    void add(const FuzzyCenters& c, int64_t set, double* statistics, double* sums) {
        for (int64_t j = 0; j < k_; ++j) add_statistics(j, statistics + j * STATISTICS * W);
        if (c.rows_in_lanes)
            for (int64_t j = 0; j < k_; ++j) add_in_lanes(c.set(set) + j * c.d, j, c.d, sums + j * c.d * W);
        else
            add_moved_rows(c.width, sums);
    }

    // After weigh(): the memberships, (rows, k).
    void write(double* out) const {
        for (int64_t j = 0; j < k_; ++j)
            for (int64_t i = 0; i < count_; ++i) out[i * k_ + j] = share_[j * ld_ + i] * scale_[i];
    }

private:
    static double move(const T* x, const double* origin, int64_t d, int64_t width, double* to) {
        Vd a{}, b{};
        int64_t t = 0;
        for (; t + 2 * W <= d; t += 2 * W) {
            const Vd p = widen(x + t) - load_(origin + t), q = widen(x + t + W) - load_(origin + t + W);
            a = fma(p, p, a);
            b = fma(q, q, b);
            store(to + t, p);
            store(to + t + W, q);
        }
        double sum = across(a + b);
        for (; t < d; ++t) {
            to[t] = static_cast<double>(x[t]) - origin[t];
            sum = fma(to[t], to[t], sum);
        }
        for (; t < width; ++t) to[t] = 0;
        return sum;
    }

    // The same squared norm, to the last bit, of rows that need not be moved; asks for what lies `ahead` on the way.
    static double norm(const double* y, int64_t width, int64_t ahead) {
        Vd a{}, b{};
        for (int64_t t = 0; t < width; t += 2 * W) {
            __builtin_prefetch(y + ahead + t, 0, 2);
            const Vd p = load_(y + t), q = load_(y + t + W);
            a = fma(p, p, a);
            b = fma(q, q, b);
        }
        return across(a + b);
    }

    static const double* in_place(const double* x) { return x; }
    static const double* in_place(const float*) { return nullptr; }

    static UNPOOLED_INLINE Vd load_(const double* p) { return UNPOOLED_ISA::load<Vd>(p); }

    template <int U>
    UNPOOLED_INLINE void pass_in_lanes(const FuzzyCenters& c, const double* quads, int64_t i) {
        for (int64_t j = 0; j < c.k; j += QUAD) {
            Vd sum[QUAD][U] = {};
            const double* xt = rows_.get() + i;
            for (int64_t t = 0; t < c.d; ++t, quads += QUAD, xt += ld_) {
                Vd x[U];
                for (int u = 0; u < U; ++u) x[u] = load_(xt + u * W);
                for (int q = 0; q < QUAD; ++q)
                    for (int u = 0; u < U; ++u) {
                        const Vd r = x[u] - quads[q];
                        sum[q][u] = fma(r, r, sum[q][u]);
                    }
            }
            const int64_t used = smaller<int64_t>(QUAD, c.k - j);
            for (int64_t q = 0; q < used; ++q)
                for (int u = 0; u < U; ++u)
                    store(sq_.get() + (j + q) * ld_ + i + u * W, lower(sum[q][u], spread<Vd>(FARTHEST)));
        }
    }

    UNPOOLED_NOINLINE void distances_in_lanes(const FuzzyCenters& c, int64_t set) {
        const double* quads = c.quads.get() + set * c.padded * c.d;
        int64_t i = 0;
        for (; i + W < lanes_; i += 2 * W) pass_in_lanes<2>(c, quads, i);
        for (; i < lanes_; i += W) pass_in_lanes<1>(c, quads, i);
    }

    UNPOOLED_NOINLINE void distances_by_score(const FuzzyCenters& c, int64_t set) {
        const int64_t rows = round_up(lanes_, ROW_GROUP);  // lanes_ is one already where W >= ROW_GROUP
        for (int64_t i = lanes_; i < rows; ++i)  // never in place: a whole block needs none of these
            copy(rows_.get() + i * c.width, rows_.get() + (lanes_ - 1) * c.width, c.width);
        const double *panels = c.panels.get() + set * c.padded * c.width, *half = c.starts.get() + set * c.padded;
        score<double>(y_, rows, c.width, panels, half, c.padded / W, scores_.get(),
                      Prefetcher(x_ + count_ * c.d, count_ * c.d * static_cast<int64_t>(sizeof(T))));
        to_lanes(scores_.get(), lanes_, c.padded, sq_.get(), ld_);
        for (int64_t j = 0; j < k_; ++j) {
            double* sq = sq_.get() + j * ld_;
            const double* center = c.set(set) + j * c.d;
            for (int64_t i = 0; i < lanes_; i += W) {
                const Vd norm = load_(norms_.get() + i), found = fma(spread<Vd>(2.0), load_(sq + i), norm);
                store(sq + i, lower(found, spread<Vd>(FARTHEST)));
                // written so that what is not a number is taken again as well
                const Vi kept = found >= CANCELLED * (norm + 2 * half[j]);
                for (int bits = where(~kept); bits; bits &= bits - 1) {
                    const int64_t row = i + __builtin_ctz(static_cast<unsigned>(bits));
                    const double exact = sqdist(x_ + smaller(row, count_ - 1) * c.d, center, c.d);
                    sq[row] = exact < FARTHEST ? exact : FARTHEST;
                }
            }
        }
    }

    // Ratios to the smallest distance: between 0 and 1 whatever the distances, and 1 for a centre on the row.
    template <bool TWO>
    UNPOOLED_NOINLINE void share(const Fuzzifier& f) {
        for (int64_t i = 0; i < lanes_; i += W) {
            Vd lowest = spread<Vd>(FARTHEST), total{};
            for (int64_t j = 0; j < k_; ++j) lowest = lower(lowest, load_(sq_.get() + j * ld_ + i));
            for (int64_t j = 0; j < k_; ++j) {
                const Vd sq = load_(sq_.get() + j * ld_ + i);
                const Vd ratio = sq > lowest ? lowest / sq : spread<Vd>(1.0);
                const Vd part = TWO ? ratio : f.raise(ratio);
                if (!TWO) store(ratio_.get() + j * ld_ + i, ratio);
                store(share_.get() + j * ld_ + i, part);
                total += part;
            }
            store(scale_.get() + i, load_(weight_.get() + i) / total);
            store(cool_.get() + i, TWO ? 1.0 / total : f.cool(total));
        }
        two_ = TWO;
    }

    // Leaves w u^m where the ratios were.
    UNPOOLED_INLINE void add_statistics(int64_t j, double* to) {
        const double *share = share_.get() + j * ld_, *from = two_ ? share : ratio_.get() + j * ld_;
        double* heavy = ratio_.get() + j * ld_;
        Vd mass = load_(to), rows = load_(to + W), squares = load_(to + 2 * W), inertia = load_(to + 3 * W);
        for (int64_t i = 0; i < lanes_; i += W) {
            const Vd wu = load_(share + i) * load_(scale_.get() + i);
            const Vd a = wu * (load_(from + i) * load_(cool_.get() + i));
            rows += wu;
            mass += a;
            squares = fma(a, a, squares);
            inertia = fma(a, load_(sq_.get() + j * ld_ + i), inertia);
            store(heavy + i, a);
        }
        store(to, mass);
        store(to + W, rows);
        store(to + 2 * W, squares);
        store(to + 3 * W, inertia);
    }

    template <int D>
    UNPOOLED_INLINE void strip_in_lanes(const double* center, const double* heavy, const double* xt,
                                        double* sums) const {
        Vd sum[D], c[D];
        for (int t = 0; t < D; ++t) {
            sum[t] = load_(sums + t * W);
            c[t] = spread<Vd>(center[t]);
        }
        for (int64_t i = 0; i < lanes_; i += W) {
            const Vd a = load_(heavy + i);
            for (int t = 0; t < D; ++t) sum[t] = fma(a, load_(xt + t * ld_ + i) - c[t], sum[t]);
        }
        for (int t = 0; t < D; ++t) store(sums + t * W, sum[t]);
    }

    UNPOOLED_INLINE void add_in_lanes(const double* center, int64_t j, int64_t d, double* sums) const {
        const double* heavy = ratio_.get() + j * ld_;
        int64_t t = 0;
        for (; t + 4 <= d; t += 4) strip_in_lanes<4>(center + t, heavy, rows_.get() + t * ld_, sums + t * W);
        if (d - t == 3) strip_in_lanes<3>(center + t, heavy, rows_.get() + t * ld_, sums + t * W);
        if (d - t == 2) strip_in_lanes<2>(center + t, heavy, rows_.get() + t * ld_, sums + t * W);
        if (d - t == 1) strip_in_lanes<1>(center + t, heavy, rows_.get() + t * ld_, sums + t * W);
    }

    template <int J>
    UNPOOLED_INLINE void strip_of_moved_rows(const double* heavy, int64_t width, double* sums) const {
        for (int64_t t = 0; t < width; t += 2 * W) {
            Vd sum[J][2];
            for (int j = 0; j < J; ++j)
                for (int v = 0; v < 2; ++v) sum[j][v] = load_(sums + j * width + t + v * W);
            const double* y = y_ + t;
            for (int64_t i = 0; i < count_; ++i, y += width) {
                const Vd p = load_(y), q = load_(y + W);
                for (int j = 0; j < J; ++j) {
                    const Vd a = spread<Vd>(heavy[j * ld_ + i]);
                    sum[j][0] = fma(a, p, sum[j][0]);
                    sum[j][1] = fma(a, q, sum[j][1]);
                }
            }
            for (int j = 0; j < J; ++j)
                for (int v = 0; v < 2; ++v) store(sums + j * width + t + v * W, sum[j][v]);
        }
    }

    UNPOOLED_NOINLINE void add_moved_rows(int64_t width, double* sums) const {
        const double* heavy = ratio_.get();
        for (int64_t left = k_; left > 0;) {
            const int64_t groups = (left + MOST_TILED - 1) / MOST_TILED, take = (left + groups - 1) / groups;
            switch (take) {
                case 1: strip_of_moved_rows<1>(heavy, width, sums); break;
                case 2: strip_of_moved_rows<2>(heavy, width, sums); break;
                case 3: strip_of_moved_rows<3>(heavy, width, sums); break;
                case 4: strip_of_moved_rows<4>(heavy, width, sums); break;
                default: strip_of_moved_rows<5>(heavy, width, sums); break;
            }
            heavy += take * ld_;
            sums += take * width;
            left -= take;
        }
    }

    const T* x_ = nullptr;
    const double* y_ = nullptr;  // d > 24: the moved rows, (count, width)
    int64_t ld_, k_, count_ = 0, lanes_ = 0;
    bool two_ = false;
    Buffer<double> sq_, share_, ratio_;      // (k, ld)
    Buffer<double> weight_, scale_, cool_;   // (ld,) w; w / S; S^(1 - m)
    Buffer<double> rows_, norms_, scores_;   // lanes, or moved rows with their squared norms and scores
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
