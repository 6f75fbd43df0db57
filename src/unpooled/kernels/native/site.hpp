// One site's rows (Site) and one Lloyd step over them (Stepper), for any d and k, with weights or without: what local
// steps, mini-batch and k-means repeat.
//
// A site with d <= 24 and n d <= 32768 values is put in lanes once and stays there (256 KB, the second cache);
// otherwise its blocks are loaded anew in every step.
#pragma once
#include "accumulate.hpp"
#include "work_items.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// The rows of a site, and a copy of them in lanes if it is small enough.
template <class T>
class Site {
public:
    const T* x = nullptr;
    const double* w = nullptr;
    int64_t n = 0, d = 0;

    void enter(const Rows& rows, int64_t site, int64_t most_in_lanes = LANE_VALUES) {
        const int64_t begin = rows.offsets[site];
        n = rows.offsets[site + 1] - begin;
        d = rows.d;
        x = static_cast<const T*>(rows.x) + begin * d;
        w = rows.weights ? rows.weights + begin : nullptr;
        in_lanes_ = keep_in_lanes(n, d, most_in_lanes);
        if (!in_lanes_) return;
        ld_ = round_up(n, W);
        lanes_.resize(ld_ * d);
        to_lanes(x, n, d, lanes_.get(), ld_);
    }

    // Calls visit(first row) for the site's blocks in order, each loaded into the block.
    template <class Visit>
    void blocks(const PackedCenters<T>& packed, RowBlock<T>& block, Visit&& visit, KeptRows* kept = nullptr) const {
        const int64_t step = block_rows(d);
        for (int64_t i = 0; i < n; i += step) {
            const int64_t rows = smaller(step, n - i);
            if (in_lanes_) {
                block.borrow(x + i * d, lanes_.get() + i, ld_, rows);
            } else if (kept) {
                const MovedLanes moved = kept->from(i);
                block.load(packed, x + i * d, rows, &moved);
            } else {
                block.load(packed, x + i * d, rows);
            }
            visit(i);
        }
    }

    // The same for a visit that looks at the rows alone, not at the centres.
    template <class Visit>
    void rows_only(const PackedCenters<T>& packed, RowBlock<T>& block, Visit&& visit) const {
        if (packed.rows_in_lanes) return blocks(packed, block, visit);
        const int64_t step = block_rows(d);
        for (int64_t i = 0; i < n; i += step) {
            block.borrow(x + i * d, nullptr, 0, smaller(step, n - i));
            visit(i);
        }
    }

    bool in_lanes() const { return in_lanes_; }
    const double* lanes() const { return lanes_.get(); }
    int64_t ld() const { return ld_; }
    const double* weights_from(int64_t i) const { return w ? w + i : nullptr; }

private:
    bool in_lanes_ = false;
    int64_t ld_ = 0;
    Buffer<double> lanes_;
};

// One bit per row, in words of 64, for where two lists of `count` labels differ; gives how many do. The lists are
// whole vectors long.
inline int64_t differences(const int64_t* a, const int64_t* b, int64_t count, uint64_t* words) {
    int64_t found = 0;
    for (int64_t begin = 0; begin < count; begin += 64) {
        const int64_t rows = smaller<int64_t>(64, count - begin);
        uint64_t bits = 0;
        for (int64_t i = 0; i < rows; i += W)
            bits |= static_cast<uint64_t>(where(load<Vi>(a + begin + i) ^ load<Vi>(b + begin + i))) << i;
        bits &= ~uint64_t(0) >> (64 - rows);  // the lanes past the end
        words[begin / 64] = bits;
        found += __builtin_popcountll(bits);
    }
    return found;
}

inline bool differ(const int64_t* a, const int64_t* b, int64_t count) {
    Vi bits{};
    for (int64_t i = 0; i < count; i += W) bits |= load<Vi>(a + i) ^ load<Vi>(b + i);
    return any(bits);
}

// What a worker needs to step one site: k centres at a time.
template <class T>
class Stepper {
public:
    PackedCenters<T> packed;
    RowBlock<T> block;
    Buffer<double> sums, mass, squares, inertia;

    Stepper(int64_t k, int64_t d, bool weighted)
        : packed(1, k, d, !use_lanes(d)),
          block(packed),
          sums(k * d),
          mass(k),
          squares(k),
          inertia(k),
          accumulator_(1, k, d, weighted),
          weighted_(weighted) {}

    void narrow(int64_t k) {
        packed.narrow(k);
        accumulator_.narrow(k);
    }

    int64_t* labels() { return labels_.get(); }
    const int64_t* labels() const { return labels_.get(); }
    const double* sqdists() const { return sqdist_.get(); }  // after a step over rows in lanes

    // Assigns the site's rows to the centres and adds up their sums; the first step of a site also its inertia.
    // Gives whether a label differs from those of the step before. `kept`, if given, is filled by the first step.
    bool step(const Site<T>& site, const double* centers, bool first, KeptRows* kept = nullptr) {
        const Sums to = out(first);
        packed.fill(centers, shift(kept));
        accumulator_.set_centers(0, centers);
        accumulator_.start(1, site.n, to);
        const bool changed =
            site.in_lanes() ? step_in_lanes(site, centers, first, to) : step_blocks(site, centers, first, to, kept);
        finish(to);
        return changed;
    }

    void label(const int64_t* labels, int64_t n) {
        labels_.resize(round_up(n, W));
        std::memcpy(labels_.get(), labels, static_cast<size_t>(n) * sizeof(int64_t));
    }

    // The sums again, under the labels as they are now; with inertia only where d > 24.
    void sum(const Site<T>& site, const double* centers, bool with_inertia = false) {
        const Sums to = out(with_inertia);
        accumulator_.set_centers(0, centers);
        accumulator_.start(1, site.n, to);
        sqdist_.resize(weighted_ ? site.n : 0);
        if (weighted_) clear(sqdist_.get(), site.n);
        accumulator_.add({site.x, site.n, labels_.get(), sqdist_.get(), site.w}, centers, 0, to);
        finish(to);
    }

    // New labels without sums; gives how many differ from those before, and marks them, one bit a row.
    int64_t relabel(const Site<T>& site, const double* centers, uint64_t* changed, KeptRows* kept) {
        packed.fill(centers, shift(kept));
        std::memset(changed, 0, static_cast<size_t>((site.n + 63) / 64) * sizeof(uint64_t));
        before_.resize(site.n);
        std::memcpy(before_.get(), labels_.get(), static_cast<size_t>(site.n) * sizeof(int64_t));
        int64_t found = 0;
        site.blocks(packed, block, [&](int64_t i) {
            block.nearest(packed, 0);
            for (int64_t j = 0; j < block.rows(); ++j) {
                if (labels_[i + j] == block.labels[j]) continue;
                labels_[i + j] = block.labels[j];
                changed[(i + j) / 64] |= uint64_t(1) << ((i + j) % 64);
                ++found;
            }
        }, kept);
        return found;
    }

    // The same where the new labels are known.
    int64_t relabel(const int64_t* labels, int64_t n, uint64_t* changed) {
        std::memset(changed, 0, static_cast<size_t>((n + 63) / 64) * sizeof(uint64_t));
        labels_.swap(before_);
        label(labels, n);
        int64_t found = 0;
        for (int64_t i = 0; i < n; ++i) {
            if (labels[i] == before_[i]) continue;
            changed[i / 64] |= uint64_t(1) << (i % 64);
            ++found;
        }
        return found;
    }

    // Moves the marked rows from the sums of the cluster they were in to those of the one they are in now; both
    // are about `origin`, and both are touched.
    void move(const Site<T>& site, const double* origin, const uint64_t* changed, bool* touched) {
        const int64_t d = packed.d;
        for (int64_t word = 0; word < (site.n + 63) / 64; ++word)
            for (uint64_t bits = changed[word]; bits; bits &= bits - 1) {
                const int64_t i = word * 64 + __builtin_ctzll(bits), from = before_[i], to = labels_[i];
                const double w = site.w ? site.w[i] : 1.0;
                const T* x = site.x + i * d;
                add_residual<true>(x, origin + from * d, d, -w, sums.get() + from * d);
                add_residual<true>(x, origin + to * d, d, w, sums.get() + to * d);
                touched[from] = touched[to] = true;
                mass[from] -= w;
                mass[to] += w;
                squares[from] -= w * w;
                squares[to] += w * w;
            }
    }

    // The mean of each cluster that has mass; a cluster without keeps its centre.
    void update(double* centers) const {
        const int64_t d = packed.d;
        for (int64_t j = 0; j < packed.k; ++j)
            if (mass[j] > 0)
                for (int64_t t = 0; t < d; ++t) centers[j * d + t] += sums[j * d + t] / mass[j];
    }

private:
    static Shift shift(KeptRows* kept) { return kept ? kept->shift() : Shift::SMALLEST; }

    bool step_in_lanes(const Site<T>& site, const double* centers, bool first, const Sums& to) {
        const int64_t padded = round_up(site.n, W);
        if (!first) labels_.swap(before_);
        labels_.resize(padded);
        sqdist_.resize(padded);
        nearest_in_lanes<false>(site.lanes(), site.ld(), site.n, site.d, packed.ready(0), packed.k, labels_.get(),
                                sqdist_.get(), nullptr);
        accumulator_.add({site.x, site.n, labels_.get(), sqdist_.get(), site.w}, centers, 0, to);
        if (first) return true;
        return differ(labels_.get(), before_.get(), padded);
    }

    bool step_blocks(const Site<T>& site, const double* centers, bool first, const Sums& to, KeptRows* kept) {
        labels_.resize(site.n);
        int64_t bits = first;
        site.blocks(packed, block, [&](int64_t i) {
            block.nearest(packed, 0);
            int64_t* before = labels_.get() + i;
            if (!first)
                for (int64_t j = 0; j < block.rows(); ++j) bits |= before[j] ^ block.labels[j];
            std::memcpy(before, block.labels, static_cast<size_t>(block.rows()) * sizeof(int64_t));
            accumulator_.add({block.x(), block.rows(), block.labels, block.sqdist, site.weights_from(i)}, centers, 0,
                             to);
        }, kept);
        return bits != 0;
    }

    void finish(const Sums& to) {
        accumulator_.flush(1, to);
        if (!weighted_) copy(squares.get(), mass.get(), packed.k);
    }

    Sums out(bool with_inertia) {
        return {sums.get(), mass.get(), weighted_ ? squares.get() : nullptr, with_inertia ? inertia.get() : nullptr};
    }

    Accumulator<T> accumulator_;
    Buffer<int64_t> labels_, before_;
    Buffer<double> sqdist_;
    bool weighted_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
