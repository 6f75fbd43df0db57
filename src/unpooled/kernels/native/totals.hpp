// The kernels totals, nearest, fold_moves and fold, for any d, k, n, with weights or without.
//
// totals: what each site adds to a Lloyd step for R sets of centres, block by block: assign (assign.hpp), accumulate
// (accumulate.hpp). A site of up to 8192 rows is summed where it is returned; a larger one in chunks, whose sums are
// added in order, so that the bits do not depend on threads. nearest: labels and distances alone. The folds: sums over
// sites.
#pragma once
#include "accumulate.hpp"
#include "work_items.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

template <class T>
class TotalsWork {
public:
    TotalsWork(const Rows& rows, const double* centers, int64_t sets, int64_t k, const TotalsOut& out, int threads)
        : rows_(rows),
          out_(out),
          size_(sets * k),
          packed_(sets, k, rows.d, true),
          items_(rows, true),
          threads_(useful_threads(threads, static_cast<double>(rows.n) * sets * k * rows.d)),
          team_(threads_, [&] { return new Worker(packed_, rows.weights != nullptr); }) {
        packed_.fill(centers);
        for (int i = 0; i < team_.size(); ++i)
            for (int64_t r = 0; r < sets; ++r) team_[i].accumulator.set_centers(r, packed_.set(r));
    }

    void run() { each_in_order(threads_, items_.count(), *this); }

    void compute(int64_t at, int worker) {
        const WorkItem& item = items_[at];
        Worker& w = team_[worker];
        if (!item.chunk) {
            for (int64_t s = item.first_site; s < item.last_site; ++s)
                add_rows(w, rows_.offsets[s], rows_.offsets[s + 1], of_site(s));
            return;
        }
        w.partial.resize(size_ * (rows_.d + 3));
        add_rows(w, item.begin, item.end, of_partial(w));
    }

    void commit(int64_t at, int worker) {
        const WorkItem& item = items_[at];
        if (!item.chunk) return;
        const Sums from = of_partial(team_[worker]), to = of_site(item.first_site);
        put(item.opens, from.sums, to.sums, size_ * rows_.d);
        put(item.opens, from.mass, to.mass, size_);
        if (to.squares) put(item.opens, from.squares, to.squares, size_);
        put(item.opens, from.inertia, to.inertia, size_);
    }

private:
    struct Worker {
        RowBlock<T> block;
        Accumulator<T> accumulator;
        Buffer<double> partial;
        Worker(const PackedCenters<T>& p, bool weighted) : block(p), accumulator(p.sets, p.k, p.d, weighted) {}
    };

    void add_rows(Worker& worker, int64_t begin, int64_t end, const Sums& to) {
        const T* x = static_cast<const T*>(rows_.x);
        const int64_t k = packed_.k, d = rows_.d, step = block_rows(d);
        RowBlock<T>& block = worker.block;
        worker.accumulator.start(packed_.sets, end - begin, to);
        for (int64_t i = begin; i < end; i += step) {
            block.load(packed_, x + i * d, smaller(step, end - i));
            const double* w = rows_.weights ? rows_.weights + i : nullptr;
            for (int64_t r = 0; r < packed_.sets; ++r) {
                block.nearest(packed_, r);
                if (out_.labels) keep(block.labels, out_.labels + r * rows_.n + i, block.rows());
                worker.accumulator.add({block.x(), block.rows(), block.labels, block.sqdist, w}, packed_.set(r), r,
                                 to.set(r, k, d));
            }
        }
        worker.accumulator.flush(packed_.sets, to);
    }

    template <class L>
    static void keep(const L* from, int32_t* to, int64_t count) {
        for (int64_t j = 0; j < count; ++j) to[j] = static_cast<int32_t>(from[j]);
    }

    static void put(bool first, const double* from, double* to, int64_t count) {
        if (first)
            copy(to, from, count);
        else
            for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    }

    Sums of_site(int64_t s) const {
        return {out_.sums + s * size_ * rows_.d, out_.mass + s * size_,
                out_.squares ? out_.squares + s * size_ : nullptr, out_.inertia + s * size_};
    }
    Sums of_partial(Worker& w) const {
        double* p = w.partial.get();
        double* counts = p + size_ * rows_.d;
        return {p, counts, out_.squares ? counts + size_ : nullptr, counts + 2 * size_};
    }

    const Rows& rows_;
    const TotalsOut& out_;
    int64_t size_;
    PackedCenters<T> packed_;
    WorkItems items_;
    int threads_;
    Team<Worker> team_;
};

template <class T>
void nearest(const Rows& rows, const double* centers, int64_t k, int32_t* labels, double* sqdist, int threads) {
    const T* x = static_cast<const T*>(rows.x);
    const int64_t d = rows.d, step = block_rows(d), chunk = 8192;
    threads = useful_threads(threads, static_cast<double>(rows.n) * k * d);
    PackedCenters<T> packed(1, k, d, true);
    packed.fill(centers);
    Team<RowBlock<T>> team(threads, [&] { return new RowBlock<T>(packed); });
    auto work = [&](int64_t item, int worker) {
        RowBlock<T>& block = team[worker];
        const int64_t end = smaller((item + 1) * chunk, rows.n);
        for (int64_t i = item * chunk; i < end; i += step) {
            const int64_t count = smaller(step, end - i);
            block.load(packed, x + i * d, count);
            block.nearest(packed, 0);
            block.distances(packed, 0);
            for (int64_t j = 0; j < count; ++j) labels[i + j] = static_cast<int32_t>(block.labels[j]);
            copy(sqdist + i, block.sqdist, count);
        }
    };
    each(threads, (rows.n + chunk - 1) / chunk, work);
}

// How the centres (k, d) of each site differ from the received ones: added up, and times its weights (k,), in the
// order of the sites. Without it, by two arrays (sites, k, d) and fold(), local steps and sums of a round of DWF in 784
// dimensions take 7 % longer with 20 sites and k 10, 17 % with 100 sites and k 20.
inline void fold_moves(const double* centers, const double* received, const double* weight, int64_t sites, int64_t k,
                       int64_t d, double* weighted, double* plain) {
    const auto add = [&](int64_t s, int64_t j) UNPOOLED_LAMBDA {
        const double w = weight[s * k + j], *to = centers + (s * k + j) * d, *from = received + j * d;
        double *heavy = weighted + j * d, *light = plain + j * d;
        for (int64_t t = 0; t < d; ++t) {
            const double move = to[t] - from[t];
            heavy[t] += move * w;
            light[t] += move;
        }
    };
    if (!use_lanes(d)) {  // a centre at a time, whose totals then stay in the first cache
        for (int64_t j = 0; j < k; ++j)
            for (int64_t s = 0; s < sites; ++s) add(s, j);
    } else {
        for (int64_t s = 0; s < sites; ++s)
            for (int64_t j = 0; j < k; ++j) add(s, j);
    }
}

// total += block[0], then block[1], ...: a stretch of the columns at a time, which changes no sum.
inline void fold(double* total, const double* block, int64_t rows, int64_t width) {
    constexpr int64_t stretch = 512;
    for (int64_t begin = 0; begin < width; begin += stretch) {
        const int64_t end = smaller(begin + stretch, width);
        for (int64_t s = 0; s < rows; ++s)
            for (int64_t i = begin; i < end; ++i) total[i] += block[s * width + i];
    }
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
