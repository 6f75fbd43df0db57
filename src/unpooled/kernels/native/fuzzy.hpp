// The kernels fuzzy (what each site adds to a step of fuzzy c-means, for R sets of centres) and memberships, for any d,
// k, n, with weights or without. The arithmetic is in fuzzy_block.hpp and, for many long rows and m = 2, in
// fuzzy_in_float.hpp; here sites are cut into work items and the sums of large sites' chunks are added in order, as in
// totals.hpp.
#pragma once
#include "fuzzy_block.hpp"
#include "fuzzy_in_float.hpp"
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
          team_(threads_, [&] { return new Worker(centers_); }) {
        bool some = false;
        for (int64_t s = 0; s < rows.sites && !some; ++s) some = in_float(s);
        if (!some) return;
        float_centers_.fill(centers, sets, k, rows.d);
        for (int i = 0; i < team_.size() && float_centers_.usable; ++i) team_[i].floats = new Floats(float_centers_);
    }

    void run() { each_in_order(threads_, items_.count(), *this); }

    void compute(int64_t at, int worker) {
        const WorkItem& item = items_[at];
        Worker& w = team_[worker];
        if (item.chunk) {
            add_rows(w, item.begin, item.end, in_float(item.first_site));
            return;
        }
        for (int64_t s = item.first_site; s < item.last_site; ++s) {
            add_rows(w, rows_.offsets[s], rows_.offsets[s + 1], in_float(s));
            give(w, s, true);
        }
    }

    void commit(int64_t at, int worker) {
        const WorkItem& item = items_[at];
        if (item.chunk) give(team_[worker], item.first_site, item.opens);
    }

private:
    // What was summed in float.
    struct Floats {
        FloatBlock<T> block;
        Buffer<double> statistics, sums, weight;  // (sets * k, STATISTICS, W); (sets * k, width); (sets,) in all
        explicit Floats(const FloatCenters& c)
            : block(c), statistics(c.sets * c.k * STATISTICS * W), sums(c.sets * c.k * c.width), weight(c.sets) {}
    };

    struct Worker {
        FuzzyBlock<T> block;
        int64_t step;  // sums per cluster
        Buffer<double> statistics, sums;
        Floats* floats = nullptr;
        bool floated = false;  // is there anything in them?
        explicit Worker(const FuzzyCenters& c)
            : block(c), step(c.rows_in_lanes ? c.d * W : c.width), statistics(c.sets * c.k * STATISTICS * W),
              sums(c.sets * c.k * step) {}
        Worker(const Worker&) = delete;
        ~Worker() { delete floats; }
    };

    bool in_float(int64_t s) const {
        return fuzzifier_.whole == 1 && fuzzy_in_float(rows_.offsets[s + 1] - rows_.offsets[s], rows_.d);
    }

    void add_rows(Worker& w, int64_t begin, int64_t end, bool in_float) {
        const int64_t rows = block_rows(rows_.d);
        clear(w.statistics.get(), size_ * STATISTICS * W);
        clear(w.sums.get(), size_ * w.step);
        w.floated = in_float && w.floats && ordinary_weights(begin, end);
        if (w.floated) begin = add_in_float(w, begin, end);
        for (int64_t i = begin; i < end; i += rows) {
            take(w, i, smaller(rows, end - i));
            for (int64_t r = 0; r < centers_.sets; ++r) add_block(w, r);
        }
    }

    void take(Worker& w, int64_t row, int64_t rows) const {
        const T* x = static_cast<const T*>(rows_.x) + row * rows_.d;
        w.block.load(centers_, x, rows, rows_.weights ? rows_.weights + row : nullptr);
    }

    void add_block(Worker& w, int64_t r) const {
        const int64_t at = r * centers_.k;
        w.block.weigh(centers_, r, fuzzifier_);
        w.block.add(centers_, r, w.statistics.get() + at * STATISTICS * W, w.sums.get() + at * w.step);
    }

    // Weights that float can square.
    bool ordinary_weights(int64_t begin, int64_t end) const {
        if (!rows_.weights) return true;
        for (int64_t i = begin; i < end; ++i) {
            const double w = rows_.weights[i];
            if (!(w == 0 || (w > 0x1p-30 && w < 0x1p30))) return false;
        }
        return true;
    }

    // Gives the row to go on from in double: before the end if float had to leave too much to it.
    int64_t add_in_float(Worker& w, int64_t begin, int64_t end) {
        Floats& f = *w.floats;
        const int64_t d = rows_.d, k = centers_.k, rows = float_block_rows(d);
        clear(f.statistics.get(), size_ * STATISTICS * W);
        clear(f.sums.get(), size_ * float_centers_.width);
        clear(f.weight.get(), centers_.sets);
        f.block.measured = 0;
        int64_t seen = 0, lost = 0;
        for (int64_t i = begin; i < end; i += rows) {
            if (seen >= 512 && (lost * 16 > seen || f.block.measured > seen * (1 + k / 8))) return i;
            const int64_t count = smaller(rows, end - i);
            f.block.take(float_centers_, static_cast<const T*>(rows_.x) + i * d, count,
                         rows_.weights ? rows_.weights + i : nullptr);
            for (int64_t r = 0; r < centers_.sets; ++r) {
                f.block.add(float_centers_, centers_.set(r), r, f.statistics.get() + r * k * STATISTICS * W,
                            f.sums.get() + r * k * float_centers_.width);
                f.weight[r] += f.block.total;
                const LostRows& apart = f.block.apart;
                for (int64_t a = 0; a < apart.count; ++a) {
                    take(w, i + apart.rows[a], 1);
                    add_block(w, r);
                }
                lost += apart.count;
            }
            seen += count * centers_.sets;
        }
        return end;
    }

    // Adds the worker's sums to those of site s, or puts them there.
    void give(const Worker& w, int64_t s, bool first) const {
        const int64_t d = rows_.d;
        double* counts[STATISTICS] = {out_.mass, out_.rows, out_.squares, out_.inertia};
        for (int64_t j = 0; j < size_; ++j) {
            for (int64_t kind = 0; kind < STATISTICS; ++kind)
                put(first, across(load_(w.statistics, j * STATISTICS + kind)), counts[kind] + s * size_ + j);
            double* to = out_.sums + (s * size_ + j) * d;
            const double* from = w.sums.get() + j * w.step;
            if (centers_.rows_in_lanes) {
                for (int64_t t = 0; t < d; ++t) put(first, across(UNPOOLED_ISA::load<Vd>(from + t * W)), to + t);
                continue;
            }
            // from sums about the origin to sums about the centre
            const double mass = across(load_(w.statistics, j * STATISTICS));
            const double* center = centers_.moved.get() + j * centers_.width;
            for (int64_t t = 0; t < d; ++t) put(first, fma(-mass, center[t], from[t]), to + t);
        }
        if (w.floated) give_floats(*w.floats, s);
    }

    // The same of what was summed in float. The memberships of a row sum to 1 but for rounding; over all rows they are
    // made to, since a coordinator takes what is missing for rows that were hidden.
    void give_floats(const Floats& f, int64_t s) const {
        const int64_t d = rows_.d, k = centers_.k, width = float_centers_.width;
        const double back = 1 / float_centers_.unit;
        for (int64_t r = 0; r < centers_.sets; ++r) {
            double rows = 0;
            for (int64_t j = r * k; j < (r + 1) * k; ++j) rows += across(load_(f.statistics, j * STATISTICS + 1));
            const double whole = rows > 0 ? f.weight[r] / rows : 1;
            for (int64_t j = r * k; j < (r + 1) * k; ++j) {
                const int64_t at = s * size_ + j;
                const double mass = across(load_(f.statistics, j * STATISTICS));
                out_.mass[at] += mass;
                out_.rows[at] += whole * across(load_(f.statistics, j * STATISTICS + 1));
                out_.squares[at] += across(load_(f.statistics, j * STATISTICS + 2));
                out_.inertia[at] += back * back * across(load_(f.statistics, j * STATISTICS + 3));
                const double *from = f.sums.get() + j * width, *center = float_centers_.exact.get() + j * width;
                for (int64_t t = 0; t < d; ++t) out_.sums[at * d + t] += back * fma(-mass, center[t], from[t]);
            }
        }
    }

    static UNPOOLED_INLINE Vd load_(const Buffer<double>& from, int64_t vector) {
        return UNPOOLED_ISA::load<Vd>(from.get() + vector * W);
    }
    static UNPOOLED_INLINE void put(bool first, double value, double* to) { *to = first ? value : *to + value; }

    const Rows& rows_;
    const FuzzyOut& out_;
    int64_t size_;
    Fuzzifier fuzzifier_;
    FuzzyCenters centers_;
    FloatCenters float_centers_;
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
