// The kernel observed: per site and cluster the sums behind a Lloyd step and the quality measures, where cells of the rows
// may be missing (NaN). A distance is over the observed columns of the row alone; rows that are groups have a share of
// persons for every cell. The centres are in the lanes, column by column, since every row has columns of its own. The
// silhouette, and distances as such, are only taken if they are wanted.
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
          none_(padded_),
          items_(rows, true),
          threads_(useful_threads(threads, static_cast<double>(rows.n) * k * rows.d)),
          team_(threads_, [&] { return new Worker(k, rows.d, padded_); }) {
        for (int64_t c = 0; c < padded_; ++c) none_[c] = c < k ? 0.0 : __builtin_inf();
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

    static constexpr int64_t BLOCK = 4;  // vectors of centres whose distances stay in registers
    static constexpr int64_t FEW = 16;   // centres up to which the nearest is found one by one

    // The observed cells of one row, without gaps: their columns, values, and shares of persons.
    struct Cells {
        Buffer<int64_t> column;
        Buffer<double> value, share;
        int64_t count = 0;
        explicit Cells(int64_t d) : column(d), value(d), share(d) {}
    };

    struct Worker {
        Buffer<double> distances, clusters, cells;
        Cells row;
        Worker(int64_t k, int64_t d, int64_t padded)
            : distances(padded), clusters(k * KINDS), cells(k * d * PARTS), row(d) {}
    };

    void add_rows(Worker& worker, int64_t begin, int64_t end) {
        const int64_t d = rows_.d;
        clear(worker.clusters.get(), k_ * KINDS);
        clear(worker.cells.get(), k_ * d * PARTS);
        for (int64_t i = begin; i < end; ++i) {
            const double seen = collect(worker.row, i);
            const int64_t label = nearest(worker);
            const double first = worker.distances[label];
            if (out_.labels) out_.labels[i] = static_cast<int32_t>(label);
            if (out_.sqdist) out_.sqdist[i] = first;
            add(worker, rows_.weights ? rows_.weights[i] : 1.0, label, seen, first);
        }
    }

    // Without a branch, which would be guessed wrong as often as cells are missing. Returns the sum of the shares.
    double collect(Cells& row, int64_t i) const {
        const T* x = static_cast<const T*>(rows_.x) + i * rows_.d;
        const double* share = shares_ ? shares_ + i * rows_.d : nullptr;
        double seen = 0.0;
        int64_t count = 0;
        for (int64_t j = 0; j < rows_.d; ++j) {
            const double value = static_cast<double>(x[j]), part = share ? share[j] : 1.0;
            const bool there = (value == value) & (part > 0);
            row.column[count] = j, row.value[count] = value, row.share[count] = part;
            count += there;
            seen += there ? part : 0.0;
        }
        row.count = count;
        return seen;
    }

    // Squared distances to all centres over the observed columns, and the nearest: the first of equal ones.
    int64_t nearest(Worker& worker) const {
        if (k_ <= FEW) {
            for (int64_t c = 0; c < padded_; c += W) block<1>(worker, c);
            const double* at = worker.distances.get();
            int64_t label = 0;
            double best = at[0];
            for (int64_t c = 1; c < k_; ++c) {
                const bool less = at[c] < best;
                label = less ? c : label;
                best = less ? at[c] : best;
            }
            return label;
        }
        Vd least = spread<Vd>(__builtin_inf());
        Vi at{}, index{}, step{};
        for (int lane = 0; lane < W; ++lane) index[lane] = lane, step[lane] = W;
        for (int64_t c = 0; c < padded_; c += BLOCK * W) {
            const int64_t vectors = smaller<int64_t>(BLOCK, (padded_ - c) / W);
            if (vectors == BLOCK) block<BLOCK>(worker, c);
            else if (vectors == 1) block<1>(worker, c);
            else if (vectors == 2) block<2>(worker, c);
            else block<3>(worker, c);
            for (int64_t v = 0; v < vectors; ++v, index += step) {
                const Vd found = load<Vd>(worker.distances.get() + c + v * W);
                at = if_less(found, least, index, at);
                least = lower(found, least);
            }
        }
        int best = 0;
        for (int lane = 1; lane < W; ++lane)
            if (least[lane] < least[best] || (least[lane] == least[best] && at[lane] < at[best])) best = lane;
        return at[best];
    }

    template <int V>
    UNPOOLED_INLINE void block(Worker& worker, int64_t c) const {
        const Cells& row = worker.row;
        Vd sum[V];
        for (int v = 0; v < V; ++v) sum[v] = load<Vd>(none_.get() + c + v * W);  // infinite beyond k
        for (int64_t i = 0; i < row.count; ++i) {
            const double* column = columns_.get() + row.column[i] * padded_ + c;
            const Vd value = spread<Vd>(row.value[i]), share = spread<Vd>(row.share[i]);
            for (int v = 0; v < V; ++v) {
                const Vd gap = value - load<Vd>(column + v * W);
                sum[v] = fma(share * gap, gap, sum[v]);
            }
        }
        for (int v = 0; v < V; ++v) store(worker.distances.get() + c + v * W, sum[v]);
    }

    void add(Worker& worker, double w, int64_t label, double seen, double first) const {
        double* cluster = worker.clusters.get() + label * KINDS;
        cluster[0] += w;
        cluster[1] += w * w;
        cluster[3] += w * first;
        if (out_.quality) {
            double second = __builtin_inf();
            for (int64_t c = 0; c < k_; ++c) second = c != label ? smaller(second, worker.distances[c]) : second;
            const double a = __builtin_sqrt(first), b = __builtin_sqrt(second), most = larger(a, b);
            cluster[2] += seen > 0 ? w * a * __builtin_sqrt(static_cast<double>(rows_.d) / seen) : 0.0;
            cluster[4] += k_ > 1 && most > 0 ? w * ((b - a) / most) : 0.0;
        }
        const double* center = centers_ + label * rows_.d;
        double* cells = worker.cells.get() + label * rows_.d * PARTS;
        for (int64_t i = 0; i < worker.row.count; ++i) {
            const int64_t j = worker.row.column[i];
            const double persons = w * worker.row.share[i], gap = worker.row.value[i] - center[j];
            double* cell = cells + j * PARTS;
            store(cell, load<V4>(cell) + spread<V4>(persons) * V4{gap, gap * gap, 1.0, persons});
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
    Buffer<double> none_;     // (padded,) 0 for a centre, infinite beyond the last
    WorkItems items_;
    int threads_;
    Team<Worker> team_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
