// The Lloyd steps of a k-means whose rows are in lanes, for k >= 20 and k d >= 200: only centres that moved are compared with the rows
// again, and only clusters that lost or got rows are summed again. After a swap most centres stay where they are.
//
// What is kept of a row is its label, the squared distance to that centre, and one that no other centre is nearer than.
// They are distances as rows_in_lanes.hpp measures them, not bounds by the triangle inequality: rounding plays no part,
// and labels are those that comparing every row with every centre would give.
#pragma once
#include "site.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// What is known of rows and clusters, between one step and the next.
struct KnownRows {
    bool compared = false;           // were the rows ever compared with centres?
    Buffer<int64_t> labels;          // (n,)
    Buffer<double> sqdist, others;   // (n,) to the own centre; no other one is nearer than this; as far as none moved
    Buffer<uint8_t> moved, changed;  // (k,) centres since the comparison; clusters since they were summed
    Buffer<double> mass, squares;    // (k,) as of the last sums

    void room(int64_t n, int64_t k) {
        const int64_t padded = round_up(n, W);
        labels.resize(padded);
        sqdist.resize(padded);
        others.resize(padded);
        moved.resize(k);
        changed.resize(k);
        mass.resize(k);
        squares.resize(k);
    }

    void start(int64_t k) {
        compared = false;
        std::memset(changed.get(), 1, static_cast<size_t>(k));
    }

    void take(const KnownRows& other, int64_t n, int64_t k) {
        compared = other.compared;
        std::memcpy(labels.get(), other.labels.get(), static_cast<size_t>(n) * sizeof(int64_t));
        copy(sqdist.get(), other.sqdist.get(), n);
        copy(others.get(), other.others.get(), n);
        std::memcpy(moved.get(), other.moved.get(), static_cast<size_t>(k));
        std::memcpy(changed.get(), other.changed.get(), static_cast<size_t>(k));
        copy(mass.get(), other.mass.get(), k);
        copy(squares.get(), other.squares.get(), k);
    }

    void swap(KnownRows& other) {
        const bool held = compared;
        compared = other.compared;
        other.compared = held;
        labels.swap(other.labels);
        sqdist.swap(other.sqdist);
        others.swap(other.others);
        moved.swap(other.moved);
        changed.swap(other.changed);
        mass.swap(other.mass);
        squares.swap(other.squares);
    }

    // Centre j is now somewhere else, and not the mean of its rows.
    void replace(int64_t j) { moved[j] = changed[j] = 1; }

    // The row becomes the centre of cluster j, before its label is changed.
    void relocate(int64_t j, int64_t row) {
        replace(j);
        changed[labels[row]] = 1;
        others[row] = smaller(others[row], sqdist[row]);
    }
};

template <class T>
class KeptLabels {
public:
    KeptLabels(int64_t k, int64_t d, bool weighted)
        : d_(d), weighted_(weighted), centers_(k * d), quads_(round_up(k, QUAD) * d), sums_(k * d), list_(k) {}

    // The rows' labels under centres of which `known.moved` moved; gives whether a label changed.
    bool relabel(const Site<T>& site, const double* centers, int64_t k, KnownRows& known) {
        room(site.n);
        int64_t count = 0;
        if (known.compared)
            for (int64_t j = 0; j < k; ++j)
                if (known.moved[j]) list_[count++] = j;
        if (known.compared && count == 0) return false;
        const bool all = !known.compared || 4 * count >= 3 * k;
        const bool changed = all ? with_all(site, centers, k, known) : with_moved(site, centers, k, count, known);
        std::memset(known.moved.get(), 0, static_cast<size_t>(k));
        known.compared = true;
        return changed;
    }

    // The sums of the clusters that changed, about their centres, and their mass.
    void sum(const Site<T>& site, const double* centers, int64_t k, KnownRows& known) {
        for (int64_t j = 0; j < k; ++j) {
            if (!known.changed[j]) continue;
            clear(sums_.get() + j * d_, d_);
            known.mass[j] = known.squares[j] = 0;
        }
        if (weighted_)
            add_rows<true>(site, centers, known);
        else
            add_rows<false>(site, centers, known);
        if (!weighted_) copy(known.squares.get(), known.mass.get(), k);
    }

    // The means of the clusters that changed; one without rows keeps its centre.
    void update(double* centers, int64_t k, KnownRows& known) const {
        for (int64_t j = 0; j < k; ++j) {
            if (!known.changed[j]) continue;
            known.changed[j] = 0;
            if (!(known.mass[j] > 0)) continue;
            for (int64_t t = j * d_; t < (j + 1) * d_; ++t) {
                const double before = centers[t];
                centers[t] += sums_[t] / known.mass[j];
                if (centers[t] != before) known.moved[j] = 1;
            }
        }
    }

private:
    void room(int64_t n) {
        const int64_t padded = round_up(n, W);
        nearest_.resize(padded);
        first_.resize(padded);
        second_.resize(padded);
        doubtful_.resize(padded);
        lanes_.resize(padded * d_);
    }

    // The nearest and second nearest of `count` centres, for rows in lanes.
    void compare(const double* lanes, int64_t ld, int64_t rows, const double* centers, int64_t count) {
        if (!use_registers(d_)) pack_quads(centers, count, d_, quads_.get());
        nearest_in_lanes<true>(lanes, ld, rows, d_, use_registers(d_) ? centers : quads_.get(), count, nearest_.get(),
                               first_.get(), second_.get());
    }

    bool put(int64_t i, int64_t label, double sqdist, double others, KnownRows& known) const {
        const int64_t before = known.labels[i];
        known.sqdist[i] = sqdist;
        known.others[i] = others;
        if (label == before) return false;
        known.labels[i] = label;
        known.changed[before] = known.changed[label] = 1;
        return true;
    }

    bool with_all(const Site<T>& site, const double* centers, int64_t k, KnownRows& known) {
        compare(site.lanes(), site.ld(), site.n, centers, k);
        if (!known.compared) {
            known.labels.swap(nearest_);
            known.sqdist.swap(first_);
            known.others.swap(second_);
            return true;
        }
        bool changed = false;
        for (int64_t i = 0; i < site.n; ++i) changed |= put(i, nearest_[i], first_[i], second_[i], known);
        return changed;
    }

    bool with_moved(const Site<T>& site, const double* centers, int64_t k, int64_t count, KnownRows& known) {
        for (int64_t c = 0; c < count; ++c) copy(centers_.get() + c * d_, centers + list_[c] * d_, d_);
        compare(site.lanes(), site.ld(), site.n, centers_.get(), count);
        bool changed = false;
        int64_t doubtful = 0;
        for (int64_t i = 0; i < site.n; ++i) {
            const int64_t own = known.labels[i], label = list_[nearest_[i]];
            const double moved = first_[i], others = known.others[i];
            if (!known.moved[own]) {
                const double sqdist = known.sqdist[i];
                if (moved < sqdist || (moved == sqdist && label < own))
                    changed |= put(i, label, moved, smaller(others, smaller(sqdist, second_[i])), known);
                else
                    known.others[i] = smaller(others, moved);
            } else if (moved < others) {
                changed |= put(i, label, moved, smaller(others, second_[i]), known);
            } else {
                doubtful_[doubtful++] = i;
            }
        }
        return with_all_doubtful(site, centers, k, doubtful, known) || changed;
    }

    // The rows whose own centre moved away so far that one that stayed may be nearer.
    bool with_all_doubtful(const Site<T>& site, const double* centers, int64_t k, int64_t count, KnownRows& known) {
        if (count == 0) return false;
        const int64_t padded = round_up(count, W);
        for (int64_t t = 0; t < d_; ++t) {
            const double* from = site.lanes() + t * site.ld();
            double* to = lanes_.get() + t * padded;
            for (int64_t i = 0; i < padded; ++i) to[i] = from[doubtful_[smaller(i, count - 1)]];
        }
        compare(lanes_.get(), padded, count, centers, k);
        bool changed = false;
        for (int64_t i = 0; i < count; ++i) changed |= put(doubtful_[i], nearest_[i], first_[i], second_[i], known);
        return changed;
    }

    template <bool WEIGHTED>
    void add_rows(const Site<T>& site, const double* centers, KnownRows& known) {
        const T* x = site.x;
        for (int64_t i = 0; i < site.n; ++i, x += d_) {
            const int64_t j = known.labels[i];
            if (!known.changed[j]) continue;
            const double w = WEIGHTED ? site.w[i] : 1.0;
            add_residual<WEIGHTED>(x, centers + j * d_, d_, w, sums_.get() + j * d_);
            known.mass[j] += w;
            if (WEIGHTED) known.squares[j] = fma(w, w, known.squares[j]);
        }
    }

    int64_t d_;
    bool weighted_;
    Buffer<double> centers_, quads_, sums_;
    Buffer<int64_t> list_;                   // (k,) the centres that moved
    Buffer<int64_t> nearest_, doubtful_;     // (n,)
    Buffer<double> first_, second_, lanes_;  // (n,), (n,), (d, n)
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
