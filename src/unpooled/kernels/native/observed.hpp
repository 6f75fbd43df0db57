// The kernel observed: per site and cluster the sums behind a Lloyd step and the quality measures, where cells of the rows
// may be missing (NaN). A distance is over the observed columns of the row alone; rows that are groups have a share of
// persons for every cell. The centres are in the lanes, column by column, since every row has columns of its own.
#pragma once
#include "work_items.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

template <class T>
class ObservedWork {
public:
    ObservedWork(const Rows& rows, const double* shares, const double* centers, int64_t k, const ObservedOut& out,
                 int threads)
        : rows_(rows),
          shares_(shares),
          centers_(centers),
          out_(out),
          k_(k),
          padded_(round_up(k, W)),
          columns_(rows.d * padded_),
          items_(rows, true),
          threads_(useful_threads(threads, static_cast<double>(rows.n) * k * rows.d)),
          team_(threads_, [&] { return new Worker(k, rows.d, padded_); }) {
        for (int64_t j = 0; j < rows.d; ++j)
            for (int64_t c = 0; c < padded_; ++c) columns_[j * padded_ + c] = c < k ? centers[c * rows.d + j] : 0.0;
    }

    void run() { each_in_order(threads_, items_.count(), *this); }

    void compute(int64_t at, int worker) {
        const WorkItem& item = items_[at];
        if (!item.chunk) {
            for (int64_t s = item.first_site; s < item.last_site; ++s) {
                add_rows(team_[worker], rows_.offsets[s], rows_.offsets[s + 1]);
                give(team_[worker], s, true);
            }
            return;
        }
        add_rows(team_[worker], item.begin, item.end);
    }

    void commit(int64_t at, int worker) {
        const WorkItem& item = items_[at];
        if (item.chunk) give(team_[worker], item.first_site, item.opens);
    }

private:
    static constexpr int64_t KINDS = 5;  // of a cluster: mass, squares, distance, inertia, silhouette
    static constexpr int64_t PARTS = 4;  // of a cluster and column: sums, squares of residuals, known, its squares

    struct Worker {
        Buffer<double> distances, clusters, cells;
        Worker(int64_t k, int64_t d, int64_t padded)
            : distances(padded), clusters(k * KINDS), cells(k * d * PARTS) {}
    };

    void add_rows(Worker& worker, int64_t begin, int64_t end) {
        const int64_t d = rows_.d;
        clear(worker.clusters.get(), k_ * KINDS);
        clear(worker.cells.get(), k_ * d * PARTS);
        for (int64_t i = begin; i < end; ++i) {
            const T* x = static_cast<const T*>(rows_.x) + i * d;
            const double* share = shares_ ? shares_ + i * d : nullptr;
            const double seen = measure(worker.distances.get(), x, share);
            const double* at = worker.distances.get();
            int64_t label = 0;
            for (int64_t c = 1; c < k_; ++c)
                if (at[c] < at[label]) label = c;
            const double first = at[label];
            double second = __builtin_inf();
            for (int64_t c = 0; c < k_; ++c)
                if (c != label && at[c] < second) second = at[c];
            if (out_.labels) out_.labels[i] = static_cast<int32_t>(label);
            if (out_.sqdist) out_.sqdist[i] = first;
            add(worker, i, x, share, label, seen, first, second);
        }
    }

    // Squared distances to all centres over the observed columns; how many columns these are, in shares of persons.
    double measure(double* distances, const T* x, const double* share) const {
        double seen = 0.0;
        for (int64_t c = 0; c < padded_; ++c) distances[c] = 0.0;
        for (int64_t j = 0; j < rows_.d; ++j) {
            const double value = static_cast<double>(x[j]), weight = share ? share[j] : 1.0;
            if (value != value || !(weight > 0)) continue;
            seen += weight;
            const double* column = columns_.get() + j * padded_;
            const Vd v = spread<Vd>(value), w = spread<Vd>(weight);
            for (int64_t c = 0; c < padded_; c += W) {
                const Vd gap = v - load<Vd>(column + c);
                store(distances + c, load<Vd>(distances + c) + w * (gap * gap));
            }
        }
        return seen;
    }

    void add(Worker& worker, int64_t i, const T* x, const double* share, int64_t label, double seen, double first,
             double second) const {
        const double w = rows_.weights ? rows_.weights[i] : 1.0;
        const double a = __builtin_sqrt(first), b = __builtin_sqrt(second), most = larger(a, b);
        double* cluster = worker.clusters.get() + label * KINDS;
        cluster[0] += w;
        cluster[1] += w * w;
        cluster[2] += seen > 0 ? w * a * __builtin_sqrt(static_cast<double>(rows_.d) / seen) : 0.0;
        cluster[3] += w * first;
        cluster[4] += k_ > 1 && most > 0 ? w * ((b - a) / most) : 0.0;
        const double* center = centers_ + label * rows_.d;
        double* cell = worker.cells.get() + label * rows_.d * PARTS;
        for (int64_t j = 0; j < rows_.d; ++j, cell += PARTS) {
            const double value = static_cast<double>(x[j]), persons = share ? w * share[j] : w;
            if (value != value || !(persons > 0)) continue;
            const double gap = value - center[j];
            cell[0] += persons * gap;
            cell[1] += persons * (gap * gap);
            cell[2] += persons;
            cell[3] += persons * persons;
        }
    }

    void give(Worker& worker, int64_t s, bool first) const {
        double* to[KINDS] = {out_.mass, out_.squares, out_.distance, out_.inertia, out_.silhouette};
        for (int64_t kind = 0; kind < KINDS; ++kind)
            for (int64_t c = 0; c < k_; ++c) {
                double& cell = to[kind][s * k_ + c];
                cell = (first ? 0.0 : cell) + worker.clusters[c * KINDS + kind];
            }
        const int64_t size = k_ * rows_.d;
        double* by_column[PARTS] = {out_.sums, out_.deviations, out_.known, out_.known_squares};
        for (int64_t part = 0; part < PARTS; ++part)
            for (int64_t c = 0; c < size; ++c) {
                double& cell = by_column[part][s * size + c];
                cell = (first ? 0.0 : cell) + worker.cells[c * PARTS + part];
            }
    }

    const Rows& rows_;
    const double* shares_;
    const double* centers_;
    const ObservedOut& out_;
    int64_t k_, padded_;
    Buffer<double> columns_;  // (d, padded) the centres, column by column
    WorkItems items_;
    int threads_;
    Team<Worker> team_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
