// Labels known from the last time, in many dimensions. A row keeps its centre while the centres have moved by less
// than its margin: how much farther the second nearest is than the nearest. Where they have not, the row is put
// against all centres again. So the labels are those that a straight step would find, and sums are always taken anew.
#pragma once
#include "site.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// One site's part of a Recall.
struct Recalled {
    int64_t* labels;
    double* margins;
    int64_t stride;  // from one step to the next
    int64_t* reached;
    double* scale;

    Recalled(const Recall& all, const Rows& rows, int64_t s)
        : labels(all.labels + rows.offsets[s]),
          margins(all.margins + rows.offsets[s]),
          stride(rows.n),
          reached(all.reached + s),
          scale(all.scale + s) {}
};

template <class T>
class Recaller {
public:
    // With the received centres, which are the same for all sites.
    Recaller(int64_t k, int64_t d, const double* centers, const double* drift)
        : k_(k),
          d_(d),
          centers_(centers),
          drift_(drift),
          received_(1, k, d),
          own_(1, k, d),
          block_(own_),
          gathered_(block_rows(d) * d),
          moved_(k) {}

    // The labels of the first step.
    bool first(const Site<T>& site, const Recalled& at) {
        const auto pack = [&]() -> const Packed<T>& {
            if (!received_.raw) received_.fill(centers_);
            return received_;
        };
        return settle(site, *at.reached > 0, centers_, drift_, *at.scale, at.labels, at.margins, pack);
    }

    // Those of a later one. With the same labels before, only the centres without support can have moved: the others
    // are means of the same rows.
    bool later(const Site<T>& site, int64_t step, bool known, const double* centers, const double* support,
               const Recalled& at) {
        for (int64_t j = 0; j < k_; ++j) moved_[j] = support[j] > 0 ? 0.0 : drift_[j];
        const auto pack = [&]() -> const Packed<T>& {
            own_.fill(centers);
            return own_;
        };
        return settle(site, known && step < *at.reached, centers, moved_.get(), *at.scale,
                      at.labels + step * at.stride, at.margins + step * at.stride, pack);
    }

private:
    static constexpr int64_t UNPACKED = 4;  // rows for which the centres are not worth packing

    // What rounding may do to a margin: a mean is summed about the received centre, whatever that is.
    double slack(const Site<T>& site, double scale) const {
        return 0x1p-50 * static_cast<double>(site.n + d_) * __builtin_sqrt(static_cast<double>(d_)) * scale;
    }

    // Gives whether the labels are what they were, which takes that there were some.
    template <class Pack>
    bool settle(const Site<T>& site, bool known, const double* centers, const double* drift, double scale,
                int64_t* labels, double* margins, Pack&& pack) {
        rows_.resize(site.n);
        const int64_t count = known ? doubtful(site.n, drift, slack(site, scale), labels, margins) : every(site.n);
        if (count <= UNPACKED) {
            for (int64_t i = 0; i < count; ++i) {
                const int64_t row = rows_[i], before = labels[row];
                measure(site.x + row * d_, centers, labels[row], margins[row]);
                known = known && labels[row] == before;
            }
            return known;
        }
        const Packed<T>& packed = pack();
        const int64_t step = block_rows(d_);
        for (int64_t a = 0; a < count; a += step) {
            const int64_t rows = smaller(step, count - a);
            block_.load(packed, count == site.n ? site.x + a * d_ : gather(site, rows_.get() + a, rows), rows);
            block_.nearest(packed, 0);
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t row = rows_[a + i];
                known = known && labels[row] == block_.labels[i];
                labels[row] = block_.labels[i];
                margins[row] = block_.margin(packed, 0, i);
            }
        }
        return known;
    }

    // One row against all centres.
    void measure(const T* x, const double* centers, int64_t& label, double& margin) const {
        double first = __builtin_inf(), second = first;
        for (int64_t j = 0; j < k_; ++j) {
            const double sq = sqdist(x, centers + j * d_, d_);
            if (sq < first) {
                second = first;
                first = sq;
                label = j;
            } else {
                second = smaller(second, sq);
            }
        }
        margin = __builtin_sqrt(second) - __builtin_sqrt(first);
    }

    int64_t every(int64_t n) {
        for (int64_t i = 0; i < n; ++i) rows_[i] = i;
        return n;
    }

    // Lessens the margins by what the centres have moved, and lists the rows that they may not hold any more.
    int64_t doubtful(int64_t n, const double* drift, double slack, const int64_t* labels, double* margins) {
        int64_t fastest = 0;
        for (int64_t j = 1; j < k_; ++j)
            if (drift[j] > drift[fastest]) fastest = j;
        double next = 0;
        for (int64_t j = 0; j < k_; ++j)
            if (j != fastest) next = larger(next, drift[j]);
        int64_t count = 0;
        for (int64_t i = 0; i < n; ++i) {
            margins[i] -= drift[labels[i]] + (labels[i] == fastest ? next : drift[fastest]);
            rows_[count] = i;
            count += !(margins[i] > slack);
        }
        return count;
    }

    const T* gather(const Site<T>& site, const int64_t* rows, int64_t count) {
        for (int64_t i = 0; i < count; ++i)
            std::memcpy(gathered_.get() + i * d_, site.x + rows[i] * d_, static_cast<size_t>(d_) * sizeof(T));
        return gathered_.get();
    }

    int64_t k_, d_;
    const double *centers_, *drift_;
    Packed<T> received_, own_;
    Block<T> block_;
    Buffer<T> gathered_;
    Buffer<double> moved_;
    Buffer<int64_t> rows_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
