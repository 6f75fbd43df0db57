// The kernel local_steps: Lloyd steps of each site by itself, for any d, k, n, with weights or without. One of four
// ways (steps_path() in paths.hpp), with the same result but for rounding:
//   steps_in_cells   d <= 4 and the site in lanes (site.hpp)
//   steps_cached     d > 24, no weights, the same received centres for all sites, and a cache given (label_cache.hpp)
//   steps_by_moves   d > 24, no weights, otherwise; the same bits as steps_cached
//   steps_plain      everything else: one Stepper::step() after the other
#pragma once
#include <memory>

#include "label_cache.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// Where the results of one site go.
struct SiteOut {
    double *centers, *mass, *squares, *inertia, *support;
};

template <class T>
struct LocalWorker {
    Site<T> site;
    Stepper<T> stepper;
    Buffer<double> supported;
    Buffer<int64_t> names;
    Buffer<double> received, cells, sqdist;
    Buffer<int64_t> labels, before;
    Buffer<uint64_t> changed;
    Buffer<bool> touched;
    KeptRows moved_rows;  // d > 24
    std::unique_ptr<CachedLabels<T>> cached_labels;
    int64_t k, d;
    bool weighted;

    LocalWorker(int64_t k, int64_t d, bool weighted)
        : stepper(k, d, weighted), supported(k * d), names(k), k(k), d(d), weighted(weighted) {
        if (!use_cells(d)) return;
        received.resize(k * cell_stride(d, weighted));
        cells.resize(k * cell_stride(d, weighted) * MOST_COPIES);
    }

    // In all of these out.centers are the received centres, and become those after the steps.
    void steps_plain(int64_t count, const SiteOut out) {
        clear(out.support, k);
        for (int64_t step = 0; step < larger<int64_t>(count, 1); ++step) {
            const bool changed = stepper.step(site, out.centers, step == 0);
            if (step == 0) give_first(out);
            if (!changed || count == 0) break;
            stepper.update(out.centers);
            for (int64_t j = 0; j < k; ++j)
                if (stepper.mass[j] > 0) out.support[j] = stepper.mass[j] * stepper.mass[j] / stepper.squares[j];
        }
    }

    // The same for d > 24 without weights. Summing a row there costs as much as comparing it with a centre or two, so
    // sums are kept, about the received centres, and after the first step only the rows that change clusters are moved
    // from one sum to another. Rows are moved for their scores once, by the mean of the received centres, and kept.
    void steps_by_moves(int64_t count, const SiteOut out) {
        clear(out.support, k);
        received.resize(k * d);
        copy(received.get(), out.centers, k * d);
        KeptRows* kept = count > 1 && keep_moved(site.n, d) ? &moved_rows : nullptr;
        if (kept) kept->start(site.n, d, block_rows(d));
        stepper.step(site, out.centers, true, kept);
        give_first(out);
        begin_moves();
        for (int64_t step = 0; step < count; ++step) {
            if (step > 0 && !move(stepper.relabel(site, out.centers, changed.get(), kept), received.get())) break;
            average(received.get(), out);
        }
    }

    // The same with the labels of the last call (label_cache.hpp). Here the received centres are `origin`, and
    // out.centers is only filled; `reach` is the largest norm of a received centre.
    void steps_cached(int64_t count, const SiteOut out, const SiteLabelCache& at, const double* origin, double reach) {
        clear(out.support, k);
        cached_labels->first(site, at);
        stepper.label(at.labels(0), site.n);
        stepper.sum(site, origin, true);
        give_first(out);
        begin_moves();
        double spread = 0;
        for (int64_t j = 0; j < k; ++j) spread += out.inertia[j];
        at.scale() = reach + __builtin_sqrt(spread);
        for (int64_t j = 0; j < k; ++j)
            if (count == 0 || !(out.mass[j] > 0)) copy(out.centers + j * d, origin + j * d, d);
        int64_t reached = 1;
        for (int64_t step = 0; step < count; ++step) {
            if (step > 0) {
                cached_labels->later(site, step, out.centers, out.support, at);
                reached = step + 1;
                if (!move(stepper.relabel(at.labels(step), site.n, changed.get()), origin)) break;
            }
            average(origin, out);
        }
        at.reached() = reached;
    }

    // What is returned of the first step.
    void give_first(const SiteOut& out) const {
        copy(out.mass, stepper.mass.get(), k);
        copy(out.squares, stepper.squares.get(), k);
        copy(out.inertia, stepper.inertia.get(), k);
    }

    void begin_moves() {
        changed.resize((site.n + 63) / 64);
        touched.resize(k);
        for (int64_t j = 0; j < k; ++j) touched[j] = true;
    }

    // The sums after `rows` rows have new labels; gives whether any has.
    bool move(int64_t rows, const double* origin) {
        if (rows == 0) return false;
        if (rows * 2 < site.n) {
            stepper.move(site, origin, changed.get(), touched.get());
        } else {
            stepper.sum(site, origin);
            for (int64_t j = 0; j < k; ++j) touched[j] = true;
        }
        return true;
    }

    // The means of the clusters whose sums have changed.
    void average(const double* origin, const SiteOut out) {
        for (int64_t j = 0; j < k; ++j) {
            if (!touched[j]) continue;
            touched[j] = false;
            double* sums = stepper.sums.get() + j * d;
            const double m = stepper.mass[j];
            if (m > 0) {
                for (int64_t t = 0; t < d; ++t) out.centers[j * d + t] = origin[j * d + t] + sums[t] / m;
                out.support[j] = m;
            } else {
                clear(sums, d);  // what rounding left
            }
        }
    }

    // The same for d <= 4 and a site in lanes, where clearing, packing and flushing between the steps would cost as
    // much as the steps. Rows are summed about the received centres; after the first step only the rows that change
    // clusters are moved, unless a quarter of them do or they have weights.
    template <int D, bool WEIGHTED>
    void steps_in_cells(CellSums<T, D, WEIGHTED> cell_sums, int64_t count, const SiteOut out) {
        using At = Cell<D>;
        constexpr int64_t stride = cell_sums.STRIDE;
        const int64_t n = site.n, padded = round_up(n, W);
        cell_sums.lay_out_centers(out.centers, k, received.get());
        labels.resize(padded);
        before.resize(padded);
        sqdist.resize(padded);
        changed.resize((n + 63) / 64);
        for (int64_t step = 0; step < larger<int64_t>(count, 1); ++step) {
            if (step > 0) labels.swap(before);
            nearest_in_lanes<D, false>(site.lanes(), site.ld(), n, D, out.centers, k, labels.get(),
                                       step == 0 ? sqdist.get() : nullptr, nullptr);
            const LabelledRows<T> rows{site.x, n, labels.get(), sqdist.get(), site.w};
            const int64_t moved = step > 0 ? differences(labels.get(), before.get(), n, changed.get()) : n;
            if (step > 0 && moved == 0) break;
            if constexpr (!WEIGHTED)
                if (moved * 4 < n) cell_sums.move(rows, before.get(), changed.get(), received.get(), cells.get());
            if (WEIGHTED || moved * 4 >= n) sum_in_cells(cell_sums, rows, step == 0);
            for (int64_t j = 0; j < k; ++j) {
                double* cell = cells.get() + j * stride;
                const double m = cell[At::MASS], q = WEIGHTED ? cell[At::SQUARES] : m;
                if (step == 0) {
                    out.mass[j] = m;
                    out.squares[j] = q;
                    out.inertia[j] = cell[At::INERTIA];
                    out.support[j] = 0;
                }
                if (count == 0) continue;
                if (m > 0) {
                    mean<D>(received.get() + j * stride, cell, m, out.centers + j * D);
                    out.support[j] = WEIGHTED ? m * m / q : m;
                } else {
                    for (int t = 0; t < D; ++t) cell[t] = 0;  // what rounding left
                }
            }
        }
    }

    template <int D>
    static UNPOOLED_INLINE void mean(const double* origin, const double* sums, double mass, double* to) {
        if constexpr (D == 2)
            store(to, load<V2>(origin) + load<V2>(sums) / mass);
        else
            for (int t = 0; t < D; ++t) to[t] = origin[t] + sums[t] / mass;
    }

    template <int D, bool WEIGHTED>
    void sum_in_cells(CellSums<T, D, WEIGHTED> cell_sums, const LabelledRows<T>& rows, bool with_inertia) {
        const int64_t copies = copies_for(rows.rows);
        for (int64_t i = 0; i < copies * k * cell_sums.STRIDE; i += 4) store(cells.get() + i, V4{});
        if (with_inertia)
            cell_sums.template add<true>(rows, received.get(), k, copies, cells.get());
        else
            cell_sums.template add<false>(rows, received.get(), k, copies, cells.get());
        if (copies > 1)
            for (int64_t j = 0; j < k; ++j)
                cell_sums.total(cells.get(), k, copies, j, cells.get() + j * cell_sums.STRIDE);
    }

    void recount(const double* centers, const double* support, double* mass, double* squares) {
        clear(mass, k);
        clear(squares, k);
        int64_t used = 0;
        for (int64_t j = 0; j < k; ++j) {
            if (!(support[j] > 0)) continue;
            copy(supported.get() + used * d, centers + j * d, d);
            names[used++] = j;
        }
        if (used == 0) return;
        stepper.narrow(used);
        stepper.packed.fill(supported.get());
        site.blocks(stepper.packed, stepper.block, [&](int64_t i) {
            stepper.block.nearest(stepper.packed, 0);
            for (int64_t j = 0; j < stepper.block.rows(); ++j) {
                const int64_t at = names[stepper.block.labels[j]];
                const double w = site.w ? site.w[i + j] : 1.0;
                mass[at] += w;
                squares[at] += w * w;
            }
        });
        stepper.narrow(k);
    }
};

template <class T>
void local_steps(const Rows& rows, const double* centers, int64_t k, const LocalPlan& plan, const LocalOut& out,
                 const LabelCache* cache, int threads) {
    const int64_t d = rows.d, steps = plan.steps;
    const bool weighted = rows.weights != nullptr;
    if (!use_cache(d, weighted, plan.own_centers)) cache = nullptr;
    double reach = 0;
    for (int64_t j = 0; cache && j < k; ++j) reach = larger(reach, __builtin_sqrt(squared_norm(centers + j * d, d)));
    threads = useful_threads(threads, static_cast<double>(rows.n) * k * d * steps);
    const WorkItems items(rows, false);
    Team<LocalWorker<T>> team(threads, [&] { return new LocalWorker<T>(k, d, weighted); });
    if (!plan.recount) {
        clear(out.recount, rows.sites * k);
        clear(out.recount_squares, rows.sites * k);
    }
    auto one_site = [&](int64_t s, LocalWorker<T>& local) UNPOOLED_LAMBDA {
        const SiteOut site_out{out.centers + s * k * d, out.mass + s * k, out.squares + s * k, out.inertia + s * k,
                               out.support + s * k};
        if (!cache) copy(site_out.centers, plan.own_centers ? centers + s * k * d : centers, k * d);
        local.site.enter(rows, s);
        switch (steps_path(local.site.n, d, weighted, cache)) {
            case StepsPath::CELLS:
                with_cell_sums<T>(d, weighted, [&](auto cells) { local.steps_in_cells(cells, steps, site_out); });
                break;
            case StepsPath::CACHED:
                local.steps_cached(steps, site_out,
                                   {*cache, rows.offsets[s], rows.n, s, larger<int64_t>(steps, 1), k}, centers, reach);
                break;
            case StepsPath::MOVES: local.steps_by_moves(steps, site_out); break;
            case StepsPath::PLAIN: local.steps_plain(steps, site_out); break;
        }
        if (plan.recount)
            local.recount(site_out.centers, site_out.support, out.recount + s * k, out.recount_squares + s * k);
    };
    auto work = [&](int64_t at, int worker) {
        LocalWorker<T>& local = team[worker];
        if (cache && !local.cached_labels) local.cached_labels.reset(new CachedLabels<T>(k, d, centers, cache->drift));
        for (int64_t s = items[at].first_site; s < items[at].last_site; ++s) one_site(s, local);
    };
    each(threads, items.count(), work);
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
