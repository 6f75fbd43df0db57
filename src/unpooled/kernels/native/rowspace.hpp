// K-means of one site whose centres are points (k, d): the usual way, for any d, k, n, with weights or without.
// pairspace.hpp is the other way, for few rows in many dimensions; kmeans.hpp chooses. Both have the functions that
// restarts_and_swaps.hpp calls.
#pragma once
#include "kept_labels.hpp"
#include "restarts_and_swaps.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

template <class T>
class RowSpace {
public:
    RowSpace(int64_t k, int64_t d, bool weighted)
        : d_(d),
          k_(k),
          stepper_(k, d, weighted),
          kept_labels_(k, d, weighted),
          both_(1, k, d),
          tried_(k * d),
          found_(k * d),
          found_mass_(k),
          found_squares_(k),
          candidates_(candidates_for(k) * d),
          potential_(candidates_for(k)),
          loss_(k),
          counts_(k) {}

    void enter(const Site<T>& site, Costs& costs) {
        site_ = &site;
        costs_ = &costs;
        closest_.resize(round_up(site.n, W));
        kept_ = keep_moved(site.n, d_) ? &moved_rows_ : nullptr;
        if (kept_) kept_->start(site.n, d_, block_rows(d_));
        keeps_labels_ = keep_labels(site.n, d_, k_);
        if (!keeps_labels_) return;
        tried_rows_.room(site.n, k_);
        found_rows_.room(site.n, k_);
    }

    void seed(int64_t k, Random& random) {
        const int64_t n = site_->n, tries = candidates_for(k);
        narrow(k);
        for (int64_t i = 0; i < round_up(n, W); ++i) closest_[i] = __builtin_inf();
        take(pick(costs_->run(nullptr), n, random.uniform()), tried_.get());
        shrink(tried_.get());
        int64_t used = 1;
        for (; used < k; ++used) {
            const double* running = costs_->run(closest_.get());
            if (!(running[n - 1] > 0)) break;  // every row lies on a centre
            for (int64_t c = 0; c < tries; ++c) take(pick(running, n, random.uniform()), candidates_.get() + c * d_);
            const double* best = candidates_.get() + lowest_potential(tries) * d_;
            copy(tried_.get() + used * d_, best, d_);
            shrink(best);
        }
        narrow(used);
        if (keeps_labels_) tried_rows_.start(used);
    }

    // The centres are in the end the means of the labels that are counted.
    double lloyd(int64_t max_iter) {
        step(true);
        const double* known = nullptr;  // the squared distances, if the last step compared the rows with these centres
        for (int64_t iteration = 0; iteration < max_iter; ++iteration) {
            if (has_empty()) fill_empty();
            update();
            if (iteration + 1 == max_iter) break;
            if (step(false)) continue;
            known = kept_sqdists();
            break;
        }
        double inertia = 0;
        for (int64_t i = 0; i < site_->n; ++i)
            inertia = fma(costs_->weight(i), known ? known[i] : row_sqdist(i), inertia);
        return tried_inertia_ = inertia;
    }

    void keep() {
        found_used_ = used_;
        found_inertia_ = tried_inertia_;
        copy(found_.get(), tried_.get(), used_ * d_);
        copy(found_mass_.get(), mass().get(), used_);
        copy(found_squares_.get(), keeps_labels_ ? tried_rows_.squares.get() : stepper_.squares.get(), used_);
        if (keeps_labels_) found_rows_.swap(tried_rows_);
    }

    void restore() {
        narrow(found_used_);
        copy(tried_.get(), found_.get(), used_ * d_);
        if (keeps_labels_) tried_rows_.take(found_rows_, site_->n, used_);
    }

    void replace(int64_t j, int64_t row) {
        take(row, tried_.get() + j * d_);
        if (keeps_labels_) tried_rows_.replace(j);
    }

    const double* weigh(int64_t* order) {
        narrow(found_used_);
        clear(loss_.get(), used_);
        RowBlock<T>& block = stepper_.block;
        both_.fill(found_.get());
        site_->blocks(both_, block, [&](int64_t first) {
            block.second(both_, 0);
            for (int64_t i = 0; i < block.rows(); ++i)
                loss_[block.labels[i]] += costs_->weight(first + i) * (block.runner_up[i] - block.sqdist[i]);
            copy(closest_.get() + first, block.sqdist, block.rows());
        });
        order_by(loss_.get(), used_, order);
        return costs_->run(closest_.get());
    }

    int64_t used() const { return found_used_; }

    // Into zeros: the clusters that have mass.
    void write(double* centers, double* mass, double* squares, double* inertia) const {
        *inertia = found_inertia_;
        for (int64_t j = 0; j < found_used_; ++j) {
            if (!(found_mass_[j] > 0)) continue;
            copy(centers + j * d_, found_.get() + j * d_, d_);
            mass[j] = found_mass_[j];
            squares[j] = found_squares_[j];
        }
    }

private:
    // One Lloyd step without the update of the centres; gives whether a label changed.
    bool step(bool first) {
        if (!keeps_labels_) return stepper_.step(*site_, tried_.get(), first, kept_);
        if (!kept_labels_.relabel(*site_, tried_.get(), used_, tried_rows_) && !first) return false;
        kept_labels_.sum(*site_, tried_.get(), used_, tried_rows_);
        return true;
    }

    void update() {
        if (keeps_labels_)
            kept_labels_.update(tried_.get(), used_, tried_rows_);
        else
            stepper_.update(tried_.get());
    }

    int64_t* labels() { return keeps_labels_ ? tried_rows_.labels.get() : stepper_.labels(); }
    const int64_t* labels() const { return keeps_labels_ ? tried_rows_.labels.get() : stepper_.labels(); }
    const double* kept_sqdists() const {
        if (keeps_labels_) return tried_rows_.sqdist.get();
        return site_->in_lanes() ? stepper_.sqdists() : nullptr;
    }
    const Buffer<double>& mass() const { return keeps_labels_ ? tried_rows_.mass : stepper_.mass; }

    void narrow(int64_t k) {
        used_ = k;
        stepper_.narrow(k);
        both_.narrow(k);
    }

    void take(int64_t row, double* to) const {
        for (int64_t t = 0; t < d_; ++t) to[t] = static_cast<double>(site_->x[row * d_ + t]);
    }

    // Squared distances of the block's rows to one point, up to a whole vector.
    void distances(const RowBlock<T>& block, const double* point, double* to) const {
        if (!use_lanes(d_)) {
            for (int64_t i = 0; i < block.rows(); ++i) to[i] = sqdist(block.x() + i * d_, point, d_);
            for (int64_t i = block.rows(); i < round_up(block.rows(), W); ++i) to[i] = 0;
            return;
        }
        for (int64_t i = 0; i < block.rows(); i += W) {
            Vd sum{};
            for (int64_t t = 0; t < d_; ++t) {
                const Vd r = load<Vd>(block.lanes() + t * block.ld() + i) - point[t];
                sum = fma(r, r, sum);
            }
            store(to + i, sum);
        }
    }

    // The same to some points at once, in many dimensions; those to each are MOST_ROWS apart.
    template <int C>
    void distances_to(const RowBlock<T>& block, const double* points, double* to) const {
        for (int64_t i = 0; i < block.rows(); ++i) sqdists<C>(block.x() + i * d_, points, d_, to + i, MOST_ROWS);
        for (int c = 0; c < C; ++c)
            for (int64_t i = block.rows(); i < round_up(block.rows(), W); ++i) to[c * MOST_ROWS + i] = 0;
    }

    // The candidate that would leave the least to the rows.
    int64_t lowest_potential(int64_t tries) {
        constexpr int TOGETHER = 3;
        double to[TOGETHER * MOST_ROWS];
        clear(potential_.get(), tries);
        site_->rows_only(stepper_.packed, stepper_.block, [&](int64_t first) {
            const RowBlock<T>& block = stepper_.block;
            for (int64_t c = 0, some; c < tries; c += some) {
                const double* points = candidates_.get() + c * d_;
                some = !use_lanes(d_) && tries - c >= TOGETHER ? TOGETHER : 1;
                if (some > 1)
                    distances_to<TOGETHER>(block, points, to);
                else
                    distances(block, points, to);
                for (int64_t a = 0; a < some; ++a) {
                    Vd sum{};
                    for (int64_t i = 0; i < block.rows(); i += W) {
                        const Vd least = lower(load<Vd>(to + a * MOST_ROWS + i), load<Vd>(closest_.get() + first + i));
                        sum = fma(load<Vd>(costs_->weights() + first + i), least, sum);
                    }
                    potential_[c + a] += across(sum);
                }
            }
        });
        int64_t best = 0;
        for (int64_t c = 1; c < tries; ++c)
            if (potential_[c] < potential_[best] * LESS) best = c;
        return best;
    }

    // What is closest with one more centre.
    void shrink(const double* point) {
        double to[MOST_ROWS];
        site_->rows_only(stepper_.packed, stepper_.block, [&](int64_t first) {
            distances(stepper_.block, point, to);
            for (int64_t i = 0; i < stepper_.block.rows(); i += W) {
                double* at = closest_.get() + first + i;
                store(at, lower(load<Vd>(to + i), load<Vd>(at)));
            }
        });
    }

    double row_sqdist(int64_t i) const {
        return sqdist(site_->x + i * d_, tried_.get() + labels()[i] * d_, d_);
    }

    bool has_empty() const {
        for (int64_t j = 0; j < used_; ++j)
            if (!(mass()[j] > 0)) return true;
        return false;
    }

    void fill_empty() {
        cost_.resize(site_->n);
        for (int64_t i = 0; i < site_->n; ++i) cost_[i] = costs_->weight(i) * row_sqdist(i);
        relocate(*costs_, used_, labels(), cost_.get(), counts_.get(), [&](int64_t j, int64_t row) {
            take(row, tried_.get() + j * d_);
            if (keeps_labels_) tried_rows_.relocate(j, row);
        });
        if (keeps_labels_)
            kept_labels_.sum(*site_, tried_.get(), used_, tried_rows_);
        else
            stepper_.sum(*site_, tried_.get());
    }

    int64_t d_, k_, used_ = 0, found_used_ = 0;
    double tried_inertia_ = 0, found_inertia_ = 0;
    const Site<T>* site_ = nullptr;
    Costs* costs_ = nullptr;
    Stepper<T> stepper_;
    KeptLabels<T> kept_labels_;
    bool keeps_labels_ = false;
    KnownRows tried_rows_, found_rows_;
    KeptRows moved_rows_, *kept_ = nullptr;  // d > 24: for all restarts
    PackedCenters<T> both_;                  // for the nearest and the second nearest
    Buffer<double> tried_, found_, found_mass_, found_squares_;
    Buffer<double> candidates_, potential_, closest_, cost_, loss_;
    Buffer<int64_t> counts_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
