// Sums by cluster (residuals, mass, squares, inertia) of rows whose labels are known, for any d and k, with weights or
// without. d <= 4 goes to the cells of dims_up_to_4.hpp; above, each row is added to the sums where they are returned.
//
// Sums are of residuals about a centre, not of rows: data far from the origin lose nothing.
#pragma once
#include "assign.hpp"
#include "dims_up_to_4.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// Where the sums of one or more sets of centres go. squares and inertia may be null.
struct Sums {
    double *sums, *mass, *squares, *inertia;

    Sums set(int64_t r, int64_t k, int64_t d) const {
        return {sums + r * k * d, mass + r * k, squares ? squares + r * k : nullptr,
                inertia ? inertia + r * k : nullptr};
    }
};

template <class T>
class Accumulator {
public:
    Accumulator(int64_t sets, int64_t k, int64_t d, bool weighted)
        : k_(k), d_(d), stride_(cell_stride(d, weighted)), weighted_(weighted), in_cells_(use_cells(d)) {
        if (!in_cells_) return;
        cells_.resize(sets * k * MOST_COPIES * stride_);
        table_.resize(sets * k * stride_);
    }

    void narrow(int64_t k) { k_ = k; }

    // The centres of a set; they must stay where they are until its rows are added.
    void set_centers(int64_t set, const double* centers) {
        if (!in_cells_) return;
        with_cell_sums<T>(d_, weighted_, [&](auto cell_sums) {
            cell_sums.lay_out_centers(centers, k_, table_.get() + set * k_ * stride_);
        });
    }

    // Before `rows` rows are added, to any of the sets.
    void start(int64_t sets, int64_t rows, const Sums& out) {
        if (in_cells_) {
            copies_ = copies_for(rows);
            clear(cells_.get(), sets * copies_ * k_ * stride_);
            return;
        }
        clear(out.sums, sets * k_ * d_);
        clear(out.mass, sets * k_);
        if (out.squares) clear(out.squares, sets * k_);
        if (out.inertia) clear(out.inertia, sets * k_);
    }

    // Adds rows by their labels; where d <= 24 and inertia is wanted, their squared distances must be there too. `set`
    // is the place among start()'s sets, `out` the sums of that set.
    void add(const LabelledRows<T>& in, const double* centers, int64_t set, const Sums& out) {
        if (!in_cells_) {
            if (weighted_)
                add_rows<true>(in, centers, out);
            else
                add_rows<false>(in, centers, out);
            return;
        }
        const double* table = table_.get() + set * k_ * stride_;
        double* cells = cells_.get() + set * copies_ * k_ * stride_;
        with_cell_sums<T>(d_, weighted_, [&](auto cell_sums) {
            if (out.inertia)
                cell_sums.template add<true>(in, table, k_, copies_, cells);
            else
                cell_sums.template add<false>(in, table, k_, copies_, cells);
        });
    }

    // After all rows: d <= 4 has its sums in the cells until here.
    void flush(int64_t sets, const Sums& out) const {
        if (!in_cells_) return;
        with_cell_sums<T>(d_, weighted_, [&](auto cell_sums) { flush_cells(cell_sums, sets, out); });
    }

private:
    template <int D, bool WEIGHTED>
    void flush_cells(CellSums<T, D, WEIGHTED> cell_sums, int64_t sets, const Sums& out) const {
        for (int64_t r = 0; r < sets; ++r) {
            const Sums to = out.set(r, k_, D);
            const double* cells = cells_.get() + r * copies_ * k_ * stride_;
            for (int64_t j = 0; j < k_; ++j) {
                alignas(64) double cell[8];
                cell_sums.total(cells, k_, copies_, j, cell);
                for (int t = 0; t < D; ++t) to.sums[j * D + t] = cell[t];
                to.mass[j] = cell[Cell<D>::MASS];
                if (to.squares) to.squares[j] = cell[Cell<D>::SQUARES];
                if (to.inertia) to.inertia[j] = cell[Cell<D>::INERTIA];
            }
        }
    }

    template <bool WEIGHTED>
    void add_rows(const LabelledRows<T>& in, const double* centers, const Sums& out) {
        const bool known = use_lanes(d_);  // the squared distances; else they come with the residuals
        const T* x = in.x;
        for (int64_t i = 0; i < in.rows; ++i, x += d_) {
            const int64_t j = in.labels[i];
            const double w = WEIGHTED ? in.w[i] : 1.0;
            double sq = 0;
            if (known || !out.inertia) {
                add_residual<WEIGHTED>(x, centers + j * d_, d_, w, out.sums + j * d_);
                sq = out.inertia ? in.sqdist[i] : 0.0;
            } else {
                sq = residual<true, WEIGHTED>(x, centers + j * d_, d_, w, out.sums + j * d_);
            }
            if (out.inertia) out.inertia[j] = fma(w, sq, out.inertia[j]);
            out.mass[j] += w;
            if (WEIGHTED) out.squares[j] = fma(w, w, out.squares[j]);
        }
    }

    int64_t k_, d_, stride_, copies_ = 1;
    bool weighted_, in_cells_;
    Buffer<double> cells_, table_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
