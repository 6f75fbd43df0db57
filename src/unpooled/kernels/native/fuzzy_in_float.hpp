// A block of long rows against sets of centres, as fuzzy c-means with m = 2 needs it: products in float, sums over
// blocks in double. d > 24, any k, with weights or without; fuzzy_block.hpp is the same in double for any m.
//
// Rows and centres are moved by the centres' mean if they lie far from zero. A row's distances that cancel are taken
// again from residuals in double. A row so close to a centre, or so far away, that float would lose it is left out
// (its weight here is 0) and named in `apart`, for the caller to add it in double. Errors of float are those of single
// rows and do not add up: over a site they stay below 1e-6 of the spread of its rows, tests/kernels/test_fuzzy_float.py.
#pragma once
#include "fuzzy_block.hpp"
#include "transpose.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

constexpr int64_t FLOAT_STRIP = 64;              // columns that are in lanes at a time
constexpr int FLOAT_TILED = VECTOR_BYTES == 64 ? 10 : 5;  // centres that are multiplied together: twice that in registers
constexpr float FLOAT_CANCELLED = 1.0F / 16;     // of |x|^2 + |c|^2, below which a distance is taken again
constexpr double FLOAT_LOST = 1.0 / 1024;        // of the same, below which a row is left to double
constexpr float FLOAT_FARTHEST = 0x1p60F;        // squared norms above it are left to double

inline int64_t float_block_rows(int64_t d) { return d <= 256 ? 64 : 32; }

// Centres that pass together: groups of nearly the same size, at most FLOAT_TILED.
inline int64_t tiled(int64_t left) {
    const int64_t groups = (left + FLOAT_TILED - 1) / FLOAT_TILED;
    return (left + groups - 1) / groups;
}

// Calls visit(Number<n>()): from a number at run time, 1 to N, to a template argument.
template <int N, class Visit>
UNPOOLED_INLINE void with_number(int64_t n, Visit&& visit) {
    if constexpr (N > 1)
        if (n < N) return with_number<N - 1>(n, visit);
    visit(Number<N>());
}

// R sets of k centres in float. Shared by all workers.
class FloatCenters {
public:
    int64_t sets = 0, k = 0, d = 0;
    int64_t width = 0;               // of a row, whole strips of two vectors
    bool usable = false;             // are there two centres apart, of ordinary size?
    bool moved = false;
    double unit = 1;
    float spread = 0;                // the largest squared norm of a centre, in units
    Buffer<double> origin, exact;    // (width,), and (sets * k, width) moved centres
    Buffer<float> tiles;             // the same by tiles, (column, centre)
    Buffer<float> norms, rests;      // (sets * k,) their squared norms, and what rounding these left

    FloatCenters() = default;

    void fill(const double* centers, int64_t sets_, int64_t k_, int64_t d_) {
        sets = sets_;
        k = k_;
        d = d_;
        width = round_up(d, larger<int64_t>(2 * LANES<float>, 8));
        const int64_t count = sets * k;
        double farthest = 0;
        place(centers, count, &farthest);
        usable = farthest > 0x1p-900 && farthest < 0x1p900;
        if (!usable) return;
        if (farthest < 0x1p-40 || farthest > 0x1p40) unit = __builtin_ldexp(1.0, -__builtin_ilogb(farthest) / 2);
        moved = moved || unit != 1;
        spread = static_cast<float>(farthest * unit * unit);
        exact.resize(count * width);
        tiles.resize(count * width);
        norms.resize(count);
        rests.resize(count);
        clear(exact.get(), count * width);
        float* tile = tiles.get();
        for (int64_t j = 0; j < count;) {
            const int64_t take = tiled(count - j);
            for (int64_t c = 0; c < take; ++c) {
                double norm = 0, *to = exact.get() + (j + c) * width;
                for (int64_t t = 0; t < d; ++t) {
                    to[t] = (centers[(j + c) * d + t] - origin[t]) * unit;
                    const double rounded = static_cast<double>(static_cast<float>(to[t]));
                    norm = fma(rounded, rounded, norm);
                }
                for (int64_t t = 0; t < width; ++t) tile[t * take + c] = static_cast<float>(to[t]);
                norms[j + c] = static_cast<float>(norm);
                rests[j + c] = static_cast<float>(norm - static_cast<double>(norms[j + c]));
            }
            tile += take * width;
            j += take;
        }
    }

private:
    // The origin: zero, or the mean of the centres if they lie closer together than that is away.
    void place(const double* centers, int64_t count, double* farthest) {
        origin.resize(width);
        clear(origin.get(), width);
        for (int64_t j = 0; j < count; ++j)
            for (int64_t t = 0; t < d; ++t) origin[t] += centers[j * d + t] / static_cast<double>(count);
        const double away = squared_norm(origin.get(), d);
        for (int64_t j = 0; j < count; ++j)
            *farthest = larger(*farthest, sqdist(origin.get(), centers + j * d, d));
        moved = !(away <= *farthest);
        if (moved) return;
        clear(origin.get(), width);
        for (int64_t j = 0; j < count; ++j) *farthest = larger(*farthest, squared_norm(centers + j * d, d));
    }
};

// Rows that float has lost, of the last add().
struct LostRows {
    int64_t count = 0, rows[64];
};

template <class T>
class FloatBlock {
public:
    LostRows apart;
    int64_t measured = 0;  // distances that were taken again, so far
    double total = 0;      // the weight of the others, of the last add()

    explicit FloatBlock(const FloatCenters& c)
        : ld_(float_block_rows(c.d)), rows_(ld_ * c.width), strip_(ld_ * FLOAT_STRIP), norms_(ld_),
          dots_(ld_ * c.sets * c.k), weight_(ld_), scale_(ld_), heavy_scale_(ld_) {}

    // At most float_block_rows(d) rows and w, which may be null. Their products with all centres.
    void take(const FloatCenters& c, const T* x, int64_t rows, const double* w) {
        x_ = x;
        w_ = w;
        count_ = rows;
        lanes_ = round_up(rows, 2 * LANES<float>);
        ahead_ = reinterpret_cast<const char*>(x + rows * c.d);
        const int64_t tiles = (c.sets * c.k + FLOAT_TILED - 1) / FLOAT_TILED;
        stride_ = ld_ * c.d * static_cast<int64_t>(sizeof(T)) / (tiles * c.width * ld_ / LANES<float>) + 1;
        clear_floats(norms_.get(), lanes_);
        clear_floats(dots_.get(), c.sets * c.k * ld_);
        for (int64_t t = 0; t < c.width; t += FLOAT_STRIP) {
            const int64_t columns = smaller(FLOAT_STRIP, c.width - t);
            if (c.moved)
                narrow<true>(c, t, columns);
            else
                narrow<false>(c, t, columns);
            to_strip(c.width, t, columns);
            multiply(c, t, columns);
        }
    }

    // The memberships of a set, and what follows from them: adds to statistics (k, STATISTICS, W) and to
    // sums (k, width) of w u^2 (x - origin) in units.
    void add(const FloatCenters& c, const double* centers, int64_t set, double* statistics, double* sums) {
        apart.count = 0;
        for (int64_t i = 0; i < lanes_; ++i) weight_[i] = i >= count_ ? 0.0F : w_ ? static_cast<float>(w_[i]) : 1.0F;
        distances(c, centers, set);
        total = 0;
        for (int64_t i = 0; i < count_; ++i) total += weight_[i] == 0 ? 0.0 : w_ ? w_[i] : 1.0;
        share(c, set);
        for (int64_t j = 0; j < c.k; ++j) add_statistics(c, set, j, statistics + j * STATISTICS * W);
        add_rows(c, set, sums);
    }

private:
    static UNPOOLED_INLINE Vf load_(const float* p) { return UNPOOLED_ISA::load<Vf>(p); }
    static void clear_floats(float* p, int64_t count) { std::memset(p, 0, static_cast<size_t>(count) * sizeof(float)); }

    // Columns t.. of the rows, moved, as floats; zeros past the last column.
    template <bool MOVED>
    UNPOOLED_NOINLINE void narrow(const FloatCenters& c, int64_t t, int64_t columns) {
        constexpr int N = larger(W, 4);
        using Wide = typename VectorOf<double, N>::type;
        using Narrow = typename VectorOf<float, N>::type;
        const int64_t some = smaller(columns, c.d - t), whole = some - some % N;
        const double* origin = c.origin.get() + t;
        const Wide unit = spread<Wide>(c.unit);
        for (int64_t i = 0; i < lanes_; ++i) {
            const T* x = x_ + smaller(i, count_ - 1) * c.d + t;
            float* to = rows_.get() + i * c.width + t;
            int64_t s = 0;
            for (; s < whole; s += N) {
                Wide v;
                if constexpr (N == 4)
                    v = widen4(x + s);
                else
                    v = widen(x + s);
                store(to + s, __builtin_convertvector(MOVED ? (v - load<Wide>(origin + s)) * unit : v, Narrow));
            }
            for (; s < some; ++s) {
                const double v = static_cast<double>(x[s]);
                to[s] = static_cast<float>(MOVED ? (v - origin[s]) * c.unit : v);
            }
            for (; s < columns; ++s) to[s] = 0;
        }
    }

    // The same with rows in lanes, (columns, ld), adding to the squared norms.
    UNPOOLED_NOINLINE void to_strip(int64_t width, int64_t t, int64_t columns) {
        constexpr int L = LANES<float>;
        for (int64_t i = 0; i < lanes_; i += L) {
            const float* x = rows_.get() + i * width + t;
            float* to = strip_.get() + i;
            Vf sum[4] = {};
            for (int64_t s = 0; s < columns; s += 4, x += 4)
                each_column(fours<L>(x, width), fours<L>(x + width, width), fours<L>(x + 2 * width, width),
                            fours<L>(x + 3 * width, width), [&](int64_t u, Vf column) UNPOOLED_LAMBDA {
                                store(to + (s + u) * ld_, column);
                                sum[u] = fma(column, column, sum[u]);
                            });
            store(norms_.get() + i, load_(norms_.get() + i) + ((sum[0] + sum[1]) + (sum[2] + sum[3])));
        }
    }

    template <int J>
    UNPOOLED_INLINE void tile(const float* centers, int64_t columns, float* dots) {
        constexpr int L = LANES<float>;
        for (int64_t i = 0; i < lanes_; i += 2 * L) {
            Vf sum[J][2] = {};
            const float *x = strip_.get() + i, *c = centers;
            const char* ahead = ahead_;
            for (int64_t s = 0; s < columns; ++s, x += ld_, c += J, ahead += stride_) {
                __builtin_prefetch(ahead, 0, 2);
                const Vf p = load_(x), q = load_(x + L);
                for (int j = 0; j < J; ++j) {
                    const Vf at = spread<Vf>(c[j]);
                    sum[j][0] = fma(at, p, sum[j][0]);
                    sum[j][1] = fma(at, q, sum[j][1]);
                }
            }
            ahead_ = ahead;
            for (int j = 0; j < J; ++j)
                for (int v = 0; v < 2; ++v) {
                    float* to = dots + j * ld_ + i + v * L;
                    store(to, load_(to) + sum[j][v]);
                }
        }
    }

    UNPOOLED_NOINLINE void multiply(const FloatCenters& c, int64_t t, int64_t columns) {
        const float* centers = c.tiles.get();
        float* dots = dots_.get();
        for (int64_t left = c.sets * c.k, take; left > 0; left -= take) {
            take = tiled(left);
            const float* at = centers + t * take;
            with_number<FLOAT_TILED>(take, [&](auto J) UNPOOLED_LAMBDA { tile<J.value>(at, columns, dots); });
            centers += take * c.width;
            dots += take * ld_;
        }
    }

    // Squared distances where the products were.
    UNPOOLED_NOINLINE void distances(const FloatCenters& c, const double* centers, int64_t set) {
        constexpr int L = LANES<float>;
        float* dots = dots_.get() + set * c.k * ld_;
        const float *squares = c.norms.get() + set * c.k, *rests = c.rests.get() + set * c.k;
        const Vf least = spread<Vf>(c.spread * 0x1p-32F);
        for (int64_t i = 0; i < lanes_; i += L) {
            const Vf norm = load_(norms_.get() + i);
            IndexVec<float> good = norm <= FLOAT_FARTHEST;  // false as well for what is not a number
            for (int64_t j = 0; j < c.k; ++j) {
                const Vf both = norm + squares[j];
                const Vf found = fma(spread<Vf>(-2.0F), load_(dots + j * ld_ + i), both) + rests[j];
                good &= found > fma(spread<Vf>(FLOAT_CANCELLED), both, least);
                store(dots + j * ld_ + i, found);
            }
            int32_t each[L];
            store(each, good);
            for (int lane = 0; lane < L; ++lane)
                if (!each[lane] && i + lane < count_) measure(c, centers, set, i + lane);
        }
        // the lanes past the last row repeat it, and must not divide by zero
        for (int64_t j = 0; j < c.k; ++j)
            for (int64_t i = count_; i < lanes_; ++i) dots[j * ld_ + i] = 1;
    }

    // Distances of a row that cancelled, from residuals.
    UNPOOLED_NOINLINE void measure(const FloatCenters& c, const double* centers, int64_t set, int64_t row) {
        float* dots = dots_.get() + set * c.k * ld_ + row;
        const float *squares = c.norms.get() + set * c.k, norm = norms_[row], least = c.spread * 0x1p-32F;
        bool lost = !(norm <= FLOAT_FARTHEST);
        for (int64_t j = 0; j < c.k && !lost; ++j) {
            const float both = norm + squares[j];
            if (dots[j * ld_] > FLOAT_CANCELLED * both + least) continue;
            const double sq = sqdist(x_ + row * c.d, centers + j * c.d, c.d) * c.unit * c.unit;
            ++measured;
            lost = !(sq > FLOAT_LOST * static_cast<double>(both + least));
            dots[j * ld_] = static_cast<float>(sq);
        }
        if (!lost) return;
        apart.rows[apart.count++] = row;
        weight_[row] = 0;
        for (int64_t j = 0; j < c.k; ++j) dots[j * ld_] = 1;
        if (!(norm <= FLOAT_FARTHEST)) clear_floats(rows_.get() + row * c.width, c.width);
    }

    // 1 / distance where the distances were, and what a row's are divided by.
    UNPOOLED_NOINLINE void share(const FloatCenters& c, int64_t set) {
        float* at = dots_.get() + set * c.k * ld_;
        for (int64_t i = 0; i < lanes_; i += LANES<float>) {
            Vf total{};
            for (int64_t j = 0; j < c.k; ++j) {
                const Vf part = 1.0F / load_(at + j * ld_ + i);
                store(at + j * ld_ + i, part);
                total += part;
            }
            const Vf scale = 1.0F / total;
            store(scale_.get() + i, scale);
            store(heavy_scale_.get() + i, scale * load_(weight_.get() + i));
        }
    }

    static UNPOOLED_INLINE void widen_into(double* to, Vf v) {
        using Half = typename VectorOf<float, W>::type;
        Half low, high;
        std::memcpy(&low, &v, sizeof low);
        std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
        store(to, load<Vd>(to) + (__builtin_convertvector(low, Vd) + __builtin_convertvector(high, Vd)));
    }

    // Leaves w u^2 where 1 / distance was. u^2 times the distance is u / (sum of all 1 / distance).
    UNPOOLED_INLINE void add_statistics(const FloatCenters& c, int64_t set, int64_t j, double* to) {
        float* at = dots_.get() + (set * c.k + j) * ld_;
        Vf mass{}, rows{}, squares{}, inertia{};
        for (int64_t i = 0; i < lanes_; i += LANES<float>) {
            const Vf part = load_(at + i), scale = load_(scale_.get() + i), wu = part * load_(heavy_scale_.get() + i);
            const Vf heavy = wu * (part * scale);
            rows += wu;
            mass += heavy;
            squares = fma(heavy, heavy, squares);
            inertia = fma(wu, scale, inertia);
            store(at + i, heavy);
        }
        widen_into(to, mass);
        widen_into(to + W, rows);
        widen_into(to + 2 * W, squares);
        widen_into(to + 3 * W, inertia);
    }

    template <int J>
    UNPOOLED_INLINE void strip_of_rows(const float* heavy, int64_t width, double* sums) {
        constexpr int L = LANES<float>;
        for (int64_t t = 0; t < width; t += 2 * L) {
            Vf sum[J][2] = {};
            const float* x = rows_.get() + t;
            const char* ahead = ahead_;
            for (int64_t i = 0; i < count_; ++i, x += width, ahead += stride_) {
                __builtin_prefetch(ahead, 0, 2);
                const Vf p = load_(x), q = load_(x + L);
                for (int j = 0; j < J; ++j) {
                    const Vf a = spread<Vf>(heavy[j * ld_ + i]);
                    sum[j][0] = fma(a, p, sum[j][0]);
                    sum[j][1] = fma(a, q, sum[j][1]);
                }
            }
            ahead_ = ahead;
            float part[2 * L];
            for (int j = 0; j < J; ++j) {
                store(part, sum[j][0]);
                store(part + L, sum[j][1]);
                double* to = sums + j * width + t;
                for (int s = 0; s < 2 * L; s += W) store(to + s, load<Vd>(to + s) + widen(part + s));
            }
        }
    }

    UNPOOLED_NOINLINE void add_rows(const FloatCenters& c, int64_t set, double* sums) {
        const float* heavy = dots_.get() + set * c.k * ld_;
        for (int64_t left = c.k, take; left > 0; left -= take) {
            take = tiled(left);
            with_number<FLOAT_TILED>(take, [&](auto J) UNPOOLED_LAMBDA { strip_of_rows<J.value>(heavy, c.width, sums); });
            heavy += take * ld_;
            sums += take * c.width;
        }
    }

    const T* x_ = nullptr;
    const double* w_ = nullptr;
    const char* ahead_ = nullptr;  // the next block is asked for bit by bit, while the products of this one run
    int64_t stride_ = 0;
    int64_t ld_, count_ = 0, lanes_ = 0;
    Buffer<float> rows_, strip_, norms_;            // (ld, width), (columns, ld), (ld,)
    Buffer<float> dots_;                            // (sets * k, ld)
    Buffer<float> weight_, scale_, heavy_scale_;    // (ld,)
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
