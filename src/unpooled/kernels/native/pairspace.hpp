// K-means of one site by the distances between its rows alone, for d > 4, n <= 1024, 2 n <= k d and enough steps to
// make up for measuring them (use_pairs() in paths.hpp); with weights or without. What it buys: with 10 restarts 3
// times the speed (n 600, d 64, k 32) to 39 times (n 300, d 784, k 64), with one start and 20 swaps 1.3 to 16 times.
#pragma once
#include "restarts_and_swaps.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// A centre: row i is sums[i] * scale - inner away, squared.
struct Mean {
    const double* sums;
    double scale, inner;

    UNPOOLED_INLINE Vd from(int64_t i) const {
        return higher(fma(load<Vd>(sums + i), spread<Vd>(scale), spread<Vd>(-inner)), Vd{});
    }
    double from_one(int64_t i) const { return larger(fma(sums[i], scale, -inner), 0.0); }
};

// Labels, and the means of the clusters they make.
struct Grouping {
    int64_t used = 0;
    Buffer<int64_t> labels, origins;  // the rows the centres were seeded at
    Buffer<double> sums, mass;
    Buffer<Mean> means;

    void room(int64_t k, int64_t ld) {
        labels.resize(ld);
        origins.resize(k);
        sums.resize(k * ld);
        mass.resize(k);
        means.resize(k);
    }

    void swap(Grouping& other) {
        const int64_t held = used;
        used = other.used;
        other.used = held;
        labels.swap(other.labels);
        origins.swap(other.origins);
        sums.swap(other.sums);
        mass.swap(other.mass);
        means.swap(other.means);
    }
};

// With D the squared distances between rows and m the mass of a cluster A, the squared distance of row i to its mean is
//
//     sum_a w_a D_ia / m  -  sum_a sum_b w_a w_b D_ab / (2 m^2)      (a, b in A)
//
// Once D is there a Lloyd step costs n^2 instead of n k d, and seeding next to nothing.
template <class T>
class PairSpace {
public:
    PairSpace(int64_t k, int64_t d, bool weighted)
        : k_(k),
          d_(d),
          stepper_(k, d, weighted),
          candidates_(candidates_for(k)),
          start_(k),
          loss_(k),
          counts_(k),
          dirty_(k) {}

    void enter(const Site<T>& site, Costs& costs) {
        site_ = &site;
        costs_ = &costs;
        n_ = site.n;
        ld_ = round_up(n_, W);
        closest_.resize(ld_);
        sqdist_.resize(ld_);
        runner_up_.resize(ld_);
        assigned_.resize(ld_);
        tried_.room(k_, ld_);
        found_.room(k_, ld_);
        measure();
    }

    void seed(int64_t k, Random& random) {
        const int64_t tries = candidates_for(k);
        int64_t* origins = tried_.origins.get();
        origins[0] = pick(costs_->run(nullptr), n_, random.uniform());
        copy(closest_.get(), between(origins[0]), ld_);
        used_ = 1;
        for (; used_ < k; ++used_) {
            const double* running = costs_->run(closest_.get());
            if (!(running[n_ - 1] > 0)) break;  // every row lies on a centre
            for (int64_t c = 0; c < tries; ++c) candidates_[c] = pick(running, n_, random.uniform());
            origins[used_] = best_candidate(tries);
            const double* row = between(origins[used_]);
            for (int64_t i = 0; i < ld_; i += W)
                store(closest_.get() + i, lower(load<Vd>(row + i), load<Vd>(closest_.get() + i)));
        }
        for (int64_t j = 0; j < used_; ++j) replace(j, origins[j]);
    }

    double lloyd(int64_t max_iter) {
        tried_.used = used_;
        assign<false>(start_.get(), tried_.labels.get());
        for (int64_t j = 0; j < used_; ++j) {
            tried_.means[j] = start_[j];
            dirty_[j] = 1;
        }
        for (int64_t iteration = 0; iteration < max_iter; ++iteration) {
            if (weigh_clusters()) fill_empty();
            average();
            if (iteration + 1 == max_iter || !reassign()) break;
        }
        double inertia = 0;
        for (int64_t i = 0; i < n_; ++i)
            inertia = fma(costs_->weight(i), tried_.means[tried_.labels[i]].from_one(i), inertia);
        return inertia;
    }

    void keep() { found_.swap(tried_); }

    void restore() {
        used_ = found_.used;
        for (int64_t j = 0; j < used_; ++j) start_[j] = found_.means[j];
    }

    void replace(int64_t j, int64_t row) { start_[j] = {between(row), 1.0, 0.0}; }

    const double* weigh(int64_t* order) {
        used_ = found_.used;
        assign<true>(found_.means.get(), assigned_.get());
        clear(loss_.get(), used_);
        for (int64_t i = 0; i < n_; ++i) loss_[assigned_[i]] += costs_->weight(i) * (runner_up_[i] - sqdist_[i]);
        order_by(loss_.get(), used_, order);
        return costs_->run(sqdist_.get());
    }

    int64_t used() const { return found_.used; }

    // Into zeros: the clusters that have mass, as points; their means or, without iterations, the rows they were
    // seeded at.
    void write(bool iterated, double* centers, double* mass, double* squares, double* inertia) {
        const int64_t* labels = found_.labels.get();
        for (int64_t i = n_ - 1; i >= 0; --i) {  // about a row of their own the means lose nothing
            if (!(costs_->weight(i) > 0)) continue;
            const T* x = site_->x + (iterated ? i : found_.origins[labels[i]]) * d_;
            for (int64_t t = 0; t < d_; ++t) centers[labels[i] * d_ + t] = static_cast<double>(x[t]);
        }
        stepper_.narrow(found_.used);
        stepper_.label(labels, n_);
        stepper_.sum(*site_, centers);
        if (iterated) stepper_.update(centers);
        copy(mass, stepper_.mass.get(), found_.used);
        copy(squares, stepper_.squares.get(), found_.used);
        *inertia = 0;
        for (int64_t i = 0; i < n_; ++i)
            *inertia = fma(costs_->weight(i), sqdist(site_->x + i * d_, centers + labels[i] * d_, d_), *inertia);
    }

private:
    static constexpr int PAIRED_A = 4, PAIRED_B = 2;

    const double* between(int64_t row) const { return pairs_.get() + row * ld_; }

    // D, from residuals: a stretch of the dimensions and a batch of rows that stay in the second cache at a time.
    void measure() {
        constexpr int64_t STRETCH = 256, BATCH = 64;
        const int64_t rows = round_up(n_, BATCH), wide = round_up(d_, W);
        points_.resize(rows * wide);
        clear(points_.get(), rows * wide);
        for (int64_t i = 0; i < n_; ++i)
            for (int64_t t = 0; t < d_; ++t) points_[i * wide + t] = static_cast<double>(site_->x[i * d_ + t]);
        pairs_.resize(n_ * ld_);
        clear(pairs_.get(), n_ * ld_);
        for (int64_t t = 0; t < wide; t += STRETCH)
            for (int64_t batch = 0; batch < n_; batch += BATCH)
                for (int64_t i = 0; i < smaller(batch + BATCH, n_); i += PAIRED_A)
                    for (int64_t j = larger(batch, i); j < smaller(batch + BATCH, n_); j += PAIRED_B)
                        add_pairs(i, j, points_.get() + t, wide, smaller(STRETCH, wide - t));
        for (int64_t batch = 0; batch < n_; batch += BATCH)
            for (int64_t i = 0; i < n_; ++i)
                for (int64_t j = batch; j < smaller(batch + BATCH, i); ++j) pairs_[i * ld_ + j] = pairs_[j * ld_ + i];
    }

    // Rows i.. against rows j.., what they differ by in `count` dimensions.
    UNPOOLED_NOINLINE void add_pairs(int64_t i, int64_t j, const double* points, int64_t wide, int64_t count) {
        Vd sum[PAIRED_A][PAIRED_B];
        for (int a = 0; a < PAIRED_A; ++a)
            for (int b = 0; b < PAIRED_B; ++b) sum[a][b] = Vd{};
        const double *p = points + i * wide, *q = points + j * wide;
        for (int64_t t = 0; t < count; t += W, p += W, q += W) {
            Vd there[PAIRED_B];
            for (int b = 0; b < PAIRED_B; ++b) there[b] = load<Vd>(q + b * wide);
            for (int a = 0; a < PAIRED_A; ++a) {
                const Vd here = load<Vd>(p + a * wide);
                for (int b = 0; b < PAIRED_B; ++b) {
                    const Vd r = here - there[b];
                    sum[a][b] = fma(r, r, sum[a][b]);
                }
            }
        }
        for (int a = 0; a < PAIRED_A; ++a)
            for (int b = 0; b < PAIRED_B; ++b)
                if (i + a < j + b && j + b < n_) pairs_[(i + a) * ld_ + j + b] += across(sum[a][b]);
    }

    // Of the candidates, the row that would leave the least to the others.
    int64_t best_candidate(int64_t tries) const {
        int64_t best = 0;
        double least = 0;
        for (int64_t c = 0; c < tries; ++c) {
            const double* row = between(candidates_[c]);
            Vd sum{};
            for (int64_t i = 0; i < ld_; i += W)
                sum = fma(load<Vd>(costs_->weights() + i), lower(load<Vd>(row + i), load<Vd>(closest_.get() + i)), sum);
            const double potential = across(sum);
            if (c > 0 && !(potential < least * LESS)) continue;
            least = potential;
            best = candidates_[c];
        }
        return best;
    }

    template <bool SECOND>
    void assign(const Mean* means, int64_t* labels) {
        for (int64_t i = 0; i < ld_; i += W) {
            NearestSoFar<1, SECOND> so_far;
            so_far.start(0, means[0].from(i));
            Vi label{};
            for (int64_t j = 1; j < used_; ++j) {
                label += 1;
                so_far.compare(0, means[j].from(i), label);
            }
            so_far.write(i, labels, sqdist_.get(), runner_up_.get());
        }
    }

    // Whether a row left its cluster; both are then to be averaged anew.
    bool reassign() {
        assign<false>(tried_.means.get(), assigned_.get());
        bool changed = false;
        for (int64_t i = 0; i < n_; ++i) {
            if (assigned_[i] == tried_.labels[i]) continue;
            changed = true;
            dirty_[assigned_[i]] = dirty_[tried_.labels[i]] = 1;
        }
        assigned_.swap(tried_.labels);
        return changed;
    }

    // The mass of each cluster; gives whether one has none.
    bool weigh_clusters() {
        clear(tried_.mass.get(), used_);
        for (int64_t i = 0; i < n_; ++i) tried_.mass[tried_.labels[i]] += costs_->weight(i);
        for (int64_t j = 0; j < used_; ++j)
            if (!(tried_.mass[j] > 0)) return true;
        return false;
    }

    void fill_empty() {
        for (int64_t i = 0; i < n_; ++i) sqdist_[i] *= costs_->weight(i);
        relocate(*costs_, used_, tried_.labels.get(), sqdist_.get(), counts_.get(),
                 [&](int64_t j, int64_t row) { dirty_[j] = dirty_[tried_.labels[row]] = 1; });
        weigh_clusters();
    }

    // The means of the clusters whose rows have changed; one without rows stays as it is.
    void average() {
        double* sums = tried_.sums.get();
        for (int64_t j = 0; j < used_; ++j) {
            if (!dirty_[j]) continue;
            double* own = sums + j * ld_;
            if (tried_.mass[j] > 0) {
                clear(own, ld_);
                tried_.means[j] = {own, 1 / tried_.mass[j], 0.0};
            } else if (tried_.means[j].sums != own) {
                copy(own, tried_.means[j].sums, ld_);
                tried_.means[j].sums = own;
            }
        }
        for (int64_t a = 0; a < n_; ++a) {
            const int64_t j = tried_.labels[a];
            if (!dirty_[j] || !(costs_->weight(a) > 0)) continue;
            const Vd w = spread<Vd>(costs_->weight(a));
            const double* row = between(a);
            double* own = sums + j * ld_;
            for (int64_t i = 0; i < ld_; i += W) store(own + i, fma(w, load<Vd>(row + i), load<Vd>(own + i)));
        }
        for (int64_t a = 0; a < n_; ++a) {
            const int64_t j = tried_.labels[a];
            if (!dirty_[j] || !(costs_->weight(a) > 0)) continue;
            const double share = costs_->weight(a) * tried_.means[j].scale;
            tried_.means[j].inner = fma(0.5 * share * tried_.means[j].scale, sums[j * ld_ + a], tried_.means[j].inner);
        }
        for (int64_t j = 0; j < used_; ++j) dirty_[j] = 0;
    }

    int64_t k_, d_, n_ = 0, ld_ = 0, used_ = 0;
    const Site<T>* site_ = nullptr;
    Costs* costs_ = nullptr;
    Stepper<T> stepper_;
    Buffer<double> points_, pairs_, closest_, sqdist_, runner_up_;
    Buffer<int64_t> candidates_, assigned_;
    Grouping tried_, found_;
    Buffer<Mean> start_;
    Buffer<double> loss_;
    Buffer<int64_t> counts_, dirty_;
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
