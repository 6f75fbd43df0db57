// The kernel scatter: per site and cluster the sums behind the internal quality measures (mass, distance, inertia,
// simplified silhouette), for any d, k, n, with weights or without. As totals.hpp, but it needs the second nearest
// centre too, and one set of centres only.
#pragma once
#include "assign.hpp"
#include "work_items.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

template <class T>
class ScatterWork {
public:
    ScatterWork(const Rows& rows, const double* centers, int64_t k, const ScatterOut& out, int threads)
        : rows_(rows),
          out_(out),
          packed_(1, k, rows.d),
          items_(rows, true),
          threads_(useful_threads(threads, static_cast<double>(rows.n) * k * rows.d)),
          team_(threads_, [&] { return new Worker(packed_); }) {
        packed_.fill(centers);
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
    static constexpr int64_t KINDS = 5;

    struct Worker {
        RowBlock<T> block;
        Buffer<double> cells;  // (k, KINDS): mass, squares, distance, inertia, silhouette
        explicit Worker(const PackedCenters<T>& p) : block(p), cells(p.k * KINDS) {}
    };

    void add_rows(Worker& worker, int64_t begin, int64_t end) {
        const T* x = static_cast<const T*>(rows_.x);
        const int64_t d = rows_.d, step = block_rows(d);
        RowBlock<T>& block = worker.block;
        clear(worker.cells.get(), packed_.k * KINDS);
        double distance[MOST_ROWS], silhouette[MOST_ROWS];
        for (int64_t i = begin; i < end; i += step) {
            const int64_t count = smaller(step, end - i);
            block.load(packed_, x + i * d, count);
            block.second(packed_, 0);
            for (int64_t j = 0; j < count; ++j) {
                const double a = __builtin_sqrt(block.sqdist[j]), b = __builtin_sqrt(block.runner_up[j]);
                distance[j] = a;
                const double most = larger(a, b);
                silhouette[j] = most > 0 && packed_.k > 1 ? (b - a) / most : 0.0;
            }
            for (int64_t j = 0; j < count; ++j) {
                const double w = rows_.weights ? rows_.weights[i + j] : 1.0;
                double* cell = worker.cells.get() + block.labels[j] * KINDS;
                cell[0] += w;
                cell[1] = fma(w, w, cell[1]);
                cell[2] = fma(w, distance[j], cell[2]);
                cell[3] = fma(w, block.sqdist[j], cell[3]);
                cell[4] = fma(w, silhouette[j], cell[4]);
            }
        }
    }

    void give(Worker& worker, int64_t s, bool first) const {
        const int64_t k = packed_.k;
        double* to[KINDS] = {out_.mass, out_.squares, out_.distance, out_.inertia, out_.silhouette};
        for (int64_t kind = 0; kind < KINDS; ++kind)
            for (int64_t j = 0; j < k; ++j) {
                double& cell = to[kind][s * k + j];
                cell = (first ? 0.0 : cell) + worker.cells[j * KINDS + kind];
            }
    }

    const Rows& rows_;
    const ScatterOut& out_;
    PackedCenters<T> packed_;
    WorkItems items_;
    int threads_;
    Team<Worker> team_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
