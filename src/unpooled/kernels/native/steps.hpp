// What a site does by itself between two rounds: Lloyd steps, or mini-batches.
#pragma once
#include <memory>

#include "random.hpp"
#include "recall.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

template <class T>
struct LocalWorker {
    Site<T> site;
    Stepper<T> stepper;
    Buffer<double> kept;
    Buffer<int64_t> names;
    Buffer<double> received, cells, sqdist;
    Buffer<int64_t> labels, before;
    Buffer<uint64_t> changed;
    Buffer<bool> touched;
    std::unique_ptr<Recaller<T>> recaller;
    int64_t k, d;
    bool weighted;

    LocalWorker(int64_t k, int64_t d, bool weighted)
        : stepper(k, d, weighted), kept(k * d), names(k), k(k), d(d), weighted(weighted) {
        if (d > MOST_HELD) return;
        received.resize(k * cell_stride(d, weighted));
        cells.resize(k * cell_stride(d, weighted) * MOST_COPIES);
    }

    void steps(int64_t count, double* centers, double* mass, double* squares, double* inertia, double* support) {
        if (d <= MOST_HELD && (site.kept() || site.n == 0)) {
            with_held<T>(d, weighted,
                         [&](auto held) { steps_held(held, count, centers, mass, squares, inertia, support); });
            return;
        }
        clear(support, k);
        if (d > FEW_DIMENSIONS && !weighted) {
            steps_moving(count, centers, mass, squares, inertia, support);
            return;
        }
        for (int64_t step = 0; step < larger<int64_t>(count, 1); ++step) {
            const bool changed = stepper.step(site, centers, step == 0);
            if (step == 0) {
                copy(mass, stepper.mass.get(), k);
                copy(squares, stepper.squares.get(), k);
                copy(inertia, stepper.inertia.get(), k);
            }
            if (!changed || count == 0) break;
            stepper.update(centers);
            for (int64_t j = 0; j < k; ++j)
                if (stepper.mass[j] > 0) support[j] = stepper.mass[j] * stepper.mass[j] / stepper.squares[j];
        }
    }

    // The same in many dimensions, where summing costs about as much as finding the nearest centre: all sums are
    // about the received centres, and after the first step only the rows that change clusters move their share.
    void steps_moving(int64_t count, double* centers, double* mass, double* squares, double* inertia,
                      double* support) {
        received.resize(k * d);
        copy(received.get(), centers, k * d);
        stepper.step(site, centers, true);
        begin(mass, squares, inertia);
        for (int64_t step = 0; step < count; ++step) {
            if (step > 0 && !move(stepper.relabel(site, centers, changed.get()), received.get())) break;
            average(received.get(), centers, support);
        }
    }

    // The same with the labels of the last time; `centers` is filled.
    void steps_recalled(int64_t count, double* centers, double* mass, double* squares, double* inertia,
                        double* support, const Recalled& at, const double* origin, double reach) {
        clear(support, k);
        recaller->first(site, at);
        stepper.label(at.labels(0), site.n);
        stepper.sum(site, origin, true);
        begin(mass, squares, inertia);
        double spread = 0;
        for (int64_t j = 0; j < k; ++j) spread += inertia[j];
        at.scale() = reach + __builtin_sqrt(spread);
        for (int64_t j = 0; j < k; ++j)
            if (count == 0 || !(mass[j] > 0)) copy(centers + j * d, origin + j * d, d);
        int64_t reached = 1;
        for (int64_t step = 0; step < count; ++step) {
            if (step > 0) {
                recaller->later(site, step, centers, support, at);
                reached = step + 1;
                if (!move(stepper.relabel(at.labels(step), site.n, changed.get()), origin)) break;
            }
            average(origin, centers, support);
        }
        at.reached() = reached;
    }

    void begin(double* mass, double* squares, double* inertia) {
        copy(mass, stepper.mass.get(), k);
        copy(squares, stepper.squares.get(), k);
        copy(inertia, stepper.inertia.get(), k);
        changed.resize((site.n + 63) / 64);
        touched.resize(k);
        for (int64_t j = 0; j < k; ++j) touched[j] = true;
    }

    // The sums after so many rows have new labels; gives whether any has.
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
    void average(const double* origin, double* centers, double* support) {
        for (int64_t j = 0; j < k; ++j) {
            if (!touched[j]) continue;
            touched[j] = false;
            double* sums = stepper.sums.get() + j * d;
            const double m = stepper.mass[j];
            if (m > 0) {
                for (int64_t t = 0; t < d; ++t) centers[j * d + t] = origin[j * d + t] + sums[t] / m;
                support[j] = m;
            } else {
                clear(sums, d);  // what rounding left
            }
        }
    }

    // The same for small sites in very few dimensions, where the housekeeping between the steps would cost as much
    // as the steps. Rows are summed about the received centres; later on only the rows that change clusters move
    // their share, unless many do or they have weights.
    template <int D, bool WEIGHTED>
    void steps_held(Held<T, D, WEIGHTED> held, int64_t count, double* centers, double* mass, double* squares,
                    double* inertia, double* support) {
        using At = Cell<D>;
        constexpr int64_t stride = held.STRIDE;
        const int64_t n = site.n, padded = round_up(n, W);
        held.lay_out(centers, k, received.get());
        labels.resize(padded);
        before.resize(padded);
        sqdist.resize(padded);
        changed.resize((n + 63) / 64);
        for (int64_t step = 0; step < larger<int64_t>(count, 1); ++step) {
            if (step > 0) labels.swap(before);
            nearest_few<D, false>(site.lanes(), site.ld(), n, D, centers, k, labels.get(),
                                  step == 0 ? sqdist.get() : nullptr, nullptr);
            const Labelled<T> rows{site.x, n, labels.get(), sqdist.get(), site.w};
            const int64_t moved = step > 0 ? differences(labels.get(), before.get(), n, changed.get()) : n;
            if (step > 0 && moved == 0) break;
            if constexpr (!WEIGHTED)
                if (moved * 4 < n) held.move(rows, before.get(), changed.get(), received.get(), cells.get());
            if (WEIGHTED || moved * 4 >= n) sum_held(held, rows, step == 0);
            for (int64_t j = 0; j < k; ++j) {
                double* cell = cells.get() + j * stride;
                const double m = cell[At::MASS], q = WEIGHTED ? cell[At::SQUARES] : m;
                if (step == 0) {
                    mass[j] = m;
                    squares[j] = q;
                    inertia[j] = cell[At::INERTIA];
                    support[j] = 0;
                }
                if (count == 0) continue;
                if (m > 0) {
                    mean<D>(received.get() + j * stride, cell, m, centers + j * D);
                    support[j] = WEIGHTED ? m * m / q : m;
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
    void sum_held(Held<T, D, WEIGHTED> held, const Labelled<T>& rows, bool with_inertia) {
        const int64_t copies = copies_for(rows.rows);
        for (int64_t i = 0; i < copies * k * held.STRIDE; i += 4) store(cells.get() + i, V4{});
        if (with_inertia)
            held.template add<true>(rows, received.get(), k, copies, cells.get());
        else
            held.template add<false>(rows, received.get(), k, copies, cells.get());
        if (copies > 1)
            for (int64_t j = 0; j < k; ++j) held.total(cells.get(), k, copies, j, cells.get() + j * held.STRIDE);
    }

    void recount(const double* centers, const double* support, double* mass, double* squares) {
        clear(mass, k);
        clear(squares, k);
        int64_t used = 0;
        for (int64_t j = 0; j < k; ++j) {
            if (!(support[j] > 0)) continue;
            copy(kept.get() + used * d, centers + j * d, d);
            names[used++] = j;
        }
        if (used == 0) return;
        stepper.narrow(used);
        stepper.packed.fill(kept.get());
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
                 const Recall* recall, int threads) {
    const int64_t d = rows.d;
    if (d <= FEW_DIMENSIONS || rows.weights || plan.own_centers) recall = nullptr;
    double reach = 0;
    for (int64_t j = 0; recall && j < k; ++j) reach = larger(reach, __builtin_sqrt(squared_norm(centers + j * d, d)));
    threads = useful_threads(threads, static_cast<double>(rows.n) * k * d * plan.steps);
    const Items items(rows, false);
    Team<LocalWorker<T>> team(threads, [&] { return new LocalWorker<T>(k, d, rows.weights != nullptr); });
    if (!plan.recount) {
        clear(out.recount, rows.sites * k);
        clear(out.recount_squares, rows.sites * k);
    }
    auto work = [&](int64_t at, int worker) {
        LocalWorker<T>& local = team[worker];
        if (recall && !local.recaller) local.recaller.reset(new Recaller<T>(k, d, centers, recall->drift));
        for (int64_t s = items[at].first_site; s < items[at].last_site; ++s) {
            double* own = out.centers + s * k * d;
            if (!recall) copy(own, plan.own_centers ? centers + s * k * d : centers, k * d);
            local.site.enter(rows, s);
            double *mass = out.mass + s * k, *squares = out.squares + s * k, *inertia = out.inertia + s * k;
            double* support = out.support + s * k;
            if (recall)
                local.steps_recalled(plan.steps, own, mass, squares, inertia, support,
                                     {*recall, rows.offsets[s], rows.n, s, larger<int64_t>(plan.steps, 1), k}, centers,
                                     reach);
            else
                local.steps(plan.steps, own, mass, squares, inertia, support);
            if (plan.recount) local.recount(own, out.support + s * k, out.recount + s * k, out.recount_squares + s * k);
        }
    };
    each(threads, items.count(), work);
}

// Triebe & Rajagopal's client: batches in shuffled order, each pulling the centres by its share of the count.
template <class T>
void minibatch(const Rows& rows, const double* centers, int64_t k, const uint64_t* seeds, const MiniBatchPlan& plan,
               const MiniBatchOut& out, int threads) {
    const int64_t d = rows.d;
    threads = useful_threads(threads, static_cast<double>(rows.n) * k * d * plan.epochs);
    const Items items(rows, false);
    Team<Stepper<T>> team(threads, [&] { return new Stepper<T>(k, d, rows.weights != nullptr); });
    auto one_site = [&](int64_t s, Stepper<T>& stepper) {
        double *gamma = out.centers + s * k * d, *lambda = out.mass + s * k, *squares = out.squares + s * k;
        copy(gamma, centers, k * d);
        clear(lambda, k);
        clear(squares, k);
        const int64_t begin = rows.offsets[s], end = rows.offsets[s + 1];
        if (begin == end) return;
        const int64_t size = plan.batch ? plan.batch : end - begin, batches = (end - begin + size - 1) / size;
        Buffer<int64_t> order(batches);
        for (int64_t b = 0; b < batches; ++b) order[b] = b;
        Random random(seeds[s]);
        for (int64_t epoch = 0; epoch < plan.epochs; ++epoch) {
            clear(lambda, k);
            clear(squares, k);
            for (int64_t i = batches - 1; i > 0; --i) {
                const int64_t j = random.below(i + 1), held = order[i];
                order[i] = order[j];
                order[j] = held;
            }
            for (int64_t b = 0; b < batches; ++b) {
                const int64_t edges[2] = {begin + order[b] * size, smaller(begin + (order[b] + 1) * size, end)};
                Rows part = rows;
                part.offsets = edges;
                Site<T> site;
                site.enter(part, 0);
                stepper.step(site, gamma, true);
                for (int64_t j = 0; j < k; ++j) {
                    lambda[j] += stepper.mass[j];
                    squares[j] += stepper.squares[j];
                    if (!(stepper.mass[j] > 0)) continue;
                    // Lambda_b / Lambda times (batch mean - centre) is the residual sum over Lambda
                    for (int64_t t = j * d; t < (j + 1) * d; ++t)
                        gamma[t] += plan.rate * (stepper.sums[t] / lambda[j]);
                }
            }
        }
    };
    auto work = [&](int64_t at, int worker) {
        for (int64_t s = items[at].first_site; s < items[at].last_site; ++s) one_site(s, team[worker]);
    };
    each(threads, items.count(), work);
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
