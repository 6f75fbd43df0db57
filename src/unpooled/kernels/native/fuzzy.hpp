// The kernels fuzzy (what each site adds to a step of fuzzy c-means, for R sets of centres) and memberships, for any d,
// k, n, with weights or without. The arithmetic is in fuzzy_block.hpp; here sites are cut into work items and the sums
// of large sites' chunks are added in order, as in totals.hpp.
#pragma once
#include "fuzzy_block.hpp"
#include "work_items.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

template <class T>
class FuzzyWork {
public:
    FuzzyWork(const Rows& rows, const double* centers, int64_t sets, int64_t k, const Fuzzifier& fuzzifier,
              const FuzzyOut& out, int threads)
        : rows_(rows),
          out_(out),
          size_(sets * k),
          fuzzifier_(fuzzifier),
          centers_(centers, sets, k, rows.d),
          items_(rows, true),
          threads_(useful_threads(threads, static_cast<double>(rows.n) * sets * k * (rows.d + 8))),
          team_(threads_, [&] { return new Worker(centers_); }) {}

    void run() { each_in_order(threads_, items_.count(), *this); }

    void compute(int64_t at, int worker) {
        const WorkItem& item = items_[at];
        Worker& w = team_[worker];
        if (item.chunk) {
            add_rows(w, item.begin, item.end);
            return;
        }
        for (int64_t s = item.first_site; s < item.last_site; ++s) {
            add_rows(w, rows_.offsets[s], rows_.offsets[s + 1]);
            give(w, s, true);
        }
    }

    void commit(int64_t at, int worker) {
        const WorkItem& item = items_[at];
        if (item.chunk) give(team_[worker], item.first_site, item.opens);
    }

private:
    struct Worker {
        FuzzyBlock<T> block;
        int64_t step;  // sums per cluster
        Buffer<double> statistics, sums;
        explicit Worker(const FuzzyCenters& c)
            : block(c), step(c.rows_in_lanes ? c.d * W : c.width), statistics(c.sets * c.k * STATISTICS * W),
              sums(c.sets * c.k * step) {}
    };

    void add_rows(Worker& w, int64_t begin, int64_t end) {
        const T* x = static_cast<const T*>(rows_.x);
        const int64_t d = rows_.d, k = centers_.k, rows = block_rows(d);
        clear(w.statistics.get(), size_ * STATISTICS * W);
        clear(w.sums.get(), size_ * w.step);
        for (int64_t i = begin; i < end; i += rows) {
            w.block.load(centers_, x + i * d, smaller(rows, end - i), rows_.weights ? rows_.weights + i : nullptr);
            for (int64_t r = 0; r < centers_.sets; ++r) {
                w.block.weigh(centers_, r, fuzzifier_);
                w.block.add(centers_, r, w.statistics.get() + r * k * STATISTICS * W, w.sums.get() + r * k * w.step);
            }
        }
    }

    // Adds the worker's sums to those of site s, or puts them there.
    void give(const Worker& w, int64_t s, bool first) const {
        const int64_t d = rows_.d;
        double* counts[STATISTICS] = {out_.mass, out_.rows, out_.squares, out_.inertia};
        for (int64_t j = 0; j < size_; ++j) {
            for (int64_t kind = 0; kind < STATISTICS; ++kind)
                put(first, across(load<Vd>(w.statistics.get() + (j * STATISTICS + kind) * W)),
                    counts[kind] + s * size_ + j);
            double* to = out_.sums + (s * size_ + j) * d;
            const double* from = w.sums.get() + j * w.step;
            if (centers_.rows_in_lanes) {
                for (int64_t t = 0; t < d; ++t) put(first, across(load<Vd>(from + t * W)), to + t);
                continue;
            }
            // from sums about the origin to sums about the centre
            const double mass = across(load<Vd>(w.statistics.get() + j * STATISTICS * W));
            const double* center = centers_.moved.get() + j * centers_.width;
            for (int64_t t = 0; t < d; ++t) put(first, fma(-mass, center[t], from[t]), to + t);
        }
    }

    static UNPOOLED_INLINE void put(bool first, double value, double* to) { *to = first ? value : *to + value; }

    const Rows& rows_;
    const FuzzyOut& out_;
    int64_t size_;
    Fuzzifier fuzzifier_;
    FuzzyCenters centers_;
    WorkItems items_;
    int threads_;
    Team<Worker> team_;
};

template <class T>
void memberships(const Rows& rows, const double* centers, int64_t k, const Fuzzifier& fuzzifier, double* out,
                 int threads) {
    const T* x = static_cast<const T*>(rows.x);
    const int64_t d = rows.d, step = block_rows(d), chunk = 8192;
    threads = useful_threads(threads, static_cast<double>(rows.n) * k * (d + 8));
    const FuzzyCenters packed(centers, 1, k, d);
    Team<FuzzyBlock<T>> team(threads, [&] { return new FuzzyBlock<T>(packed); });
    auto work = [&](int64_t item, int worker) {
        FuzzyBlock<T>& block = team[worker];
        const int64_t end = smaller((item + 1) * chunk, rows.n);
        for (int64_t i = item * chunk; i < end; i += step) {
            block.load(packed, x + i * d, smaller(step, end - i), nullptr);
            block.weigh(packed, 0, fuzzifier);
            block.write(out + i * k);
        }
    };
    each(threads, (rows.n + chunk - 1) / chunk, work);
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
