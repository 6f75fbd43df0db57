// Local steps that know the labels of the last time they were taken from the same rows, in many dimensions. Labels are
// those that straight steps would find, and sums are always taken anew, so nothing changes but the time.
#pragma once
#include "settle.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// One site's part of a Recall.
struct Recalled {
    const Recall& all;
    int64_t begin, n, site, steps, k;  // n: the rows of all sites

    Known at(int64_t step) const {
        const int64_t row = step * n + begin;
        return {all.labels + row, all.margins + row, all.bounds + row * k, all.moved + (site * steps + step) * k};
    }
    const int64_t* labels(int64_t step) const { return all.labels + step * n + begin; }
    int64_t& reached() const { return all.reached[site]; }
    double& scale() const { return all.scale[site]; }
};

template <class T>
class Recaller {
public:
    // With the received centres, which are the same for all sites.
    Recaller(int64_t k, int64_t d, const double* centers, const double* drift)
        : k_(k),
          d_(d),
          centers_(centers),
          drift_(drift),
          received_(1, k, d),
          own_(1, k, d),
          settler_(own_),
          moved_(k),
          differs_(k) {}

    // The labels of the first step.
    void first(const Site<T>& site, const Recalled& at) {
        const auto pack = [&]() -> const Packed<T>& {
            if (!received_.raw) received_.fill(centers_);
            return received_;
        };
        for (int64_t j = 0; j < k_; ++j) differs_[j] = at.reached() == 0;
        if (at.reached() > 0)
            settler_.again(site, centers_, k_, drift_, slack(site, at), at.at(0), differs_.get(), pack);
        else
            settler_.all(site, k_, at.at(0), pack);
    }

    // Those of a later one. A cluster with the same rows as the last time has the same mean, to rounding; without
    // support it is still the received one, and has moved with it.
    void later(const Site<T>& site, int64_t step, const double* centers, const double* support, const Recalled& at) {
        const auto pack = [&]() -> const Packed<T>& {
            own_.fill(centers);
            return own_;
        };
        int64_t unknown = 0;
        for (int64_t j = 0; j < k_; ++j) {
            unknown += differs_[j];
            moved_[j] = differs_[j] ? __builtin_inf() : support[j] > 0 ? 0.0 : drift_[j];
        }
        if (step < at.reached() && unknown * 2 < k_) {
            settler_.again(site, centers, k_, moved_.get(), slack(site, at), at.at(step), differs_.get(), pack);
            return;
        }
        settler_.all(site, k_, at.at(step), pack);
        for (int64_t j = 0; j < k_; ++j) differs_[j] = true;
    }

private:
    double slack(const Site<T>& site, const Recalled& at) const { return rounding(site.n, d_, at.scale()); }

    int64_t k_, d_;
    const double *centers_, *drift_;
    Packed<T> received_, own_;
    Settler<T> settler_;
    Buffer<double> moved_;
    Buffer<bool> differs_;  // from the last time: the rows of the cluster in any step so far
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
