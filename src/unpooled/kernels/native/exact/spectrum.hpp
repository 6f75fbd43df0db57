// The part of a symmetric matrix below zero: its negative eigenvalues with their vectors. Nothing here needs to be exact.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace unpooled {
namespace exact {

class Spectrum {
public:
    std::vector<double> values;   // negative eigenvalues, lowest first
    std::vector<double> vectors;  // (values, n)

    // Of A (n, n), which is lost. With `least`, of the lowest eigenvalue, whatever its sign, without its vector.
    Spectrum(std::vector<double>& A, int n, bool least = false) : n_(n), diagonal_(n), beside_(n, 0.0), beta_(n, 0.0) {
        reduce(A);
        double low = diagonal_[0], high = diagonal_[0];
        for (int i = 0; i < n; ++i) {
            const double around = std::fabs(beside_[i]) + (i + 1 < n ? std::fabs(beside_[i + 1]) : 0.0);
            low = std::min(low, diagonal_[i] - around), high = std::max(high, diagonal_[i] + around);
        }
        size_ = std::max({std::fabs(low), std::fabs(high), 1e-300});
        const int count = least ? 1 : below(0.0);
        for (int m = 0; m < count; ++m) {
            double from = m ? values[m - 1] : low - 1e-14 * size_, to = least ? high + 1e-14 * size_ : 0.0;
            for (int step = 0; step < 60 && to - from > 2e-16 * size_; ++step) {
                const double middle = 0.5 * (from + to);
                (below(middle) > m ? to : from) = middle;
            }
            values.push_back(0.5 * (from + to));
        }
        if (least) return;
        vectors.assign(static_cast<size_t>(count) * n, 0.0);
        for (int m = 0; m < count; ++m) invert(m);
        for (int m = 0; m < count; ++m) turn_back(A, &vectors[static_cast<size_t>(m) * n]);
    }

    static int64_t work(int n) { return 1LL * n * n * n + 4000LL * n; }

private:
    const int n_;
    std::vector<double> diagonal_, beside_, beta_;  // beside_[i] couples i - 1 and i
    double size_ = 0;

    // Householder's reflections to a tridiagonal matrix; the vectors stay in the columns of A, below the diagonal.
    void reduce(std::vector<double>& A) {
        const int n = n_;
        std::vector<double> v(n), p(n);
        for (int k = 0; k + 1 < n; ++k) {
            double norm = 0;
            for (int i = k + 1; i < n; ++i) norm += A[static_cast<size_t>(i) * n + k] * A[static_cast<size_t>(i) * n + k];
            norm = std::sqrt(norm);
            const double first = A[static_cast<size_t>(k + 1) * n + k], to = first > 0 ? -norm : norm;
            diagonal_[k] = A[static_cast<size_t>(k) * n + k];
            beside_[k + 1] = to;
            if (!(norm > 0) || k + 2 >= n) {
                if (k + 2 >= n) beside_[k + 1] = first;
                continue;
            }
            for (int i = k + 1; i < n; ++i) v[i] = A[static_cast<size_t>(i) * n + k];
            v[k + 1] -= to;
            const double beta = 1 / (norm * (norm + std::fabs(first)));
            std::fill(p.begin() + k + 1, p.end(), 0.0);
            for (int j = k + 1; j < n; ++j) {
                const double* row = &A[static_cast<size_t>(j) * n];
                const double by = beta * v[j];
                for (int i = k + 1; i < n; ++i) p[i] += row[i] * by;
            }
            double along = 0;
            for (int i = k + 1; i < n; ++i) along += p[i] * v[i];
            along *= 0.5 * beta;
            for (int i = k + 1; i < n; ++i) p[i] -= along * v[i];
            for (int i = k + 1; i < n; ++i) {
                double* row = &A[static_cast<size_t>(i) * n];
                const double a = v[i], b = p[i];
                for (int j = k + 1; j < n; ++j) row[j] -= a * p[j] + b * v[j];
            }
            beta_[k] = beta;
            for (int i = k + 1; i < n; ++i) A[static_cast<size_t>(i) * n + k] = v[i];
        }
        diagonal_[n - 1] = A[static_cast<size_t>(n) * n - 1];
    }

    // The number of eigenvalues below x, by Sturm's sequence.
    int below(double x) const {
        int count = 0;
        double q = 1;
        const double tiny = 1e-30 * size_ + 1e-290;
        for (int i = 0; i < n_; ++i) {
            q = diagonal_[i] - x - (i ? beside_[i] * beside_[i] / q : 0.0);
            if (std::fabs(q) < tiny) q = -tiny;
            count += q < 0;
        }
        return count;
    }

    // The vector of value m: inverse iteration, orthogonal to those before.
    void invert(int m) {
        const int n = n_;
        const double at = values[m] + 1e-15 * size_ * (m + 1), tiny = 1e-20 * size_ + 1e-290;
        double* x = &vectors[static_cast<size_t>(m) * n];
        for (int i = 0; i < n; ++i) x[i] = 1 + 0.01 * ((i * 7919 + m * 104729) % 101);
        // T - at = P L U, U with two diagonals beside
        std::vector<double> u0(n), u1(n, 0.0), u2(n, 0.0), factor(n, 0.0);
        std::vector<char> swapped(n, 0);
        u0[0] = diagonal_[0] - at;
        if (n > 1) u1[0] = beside_[1];
        for (int i = 0; i + 1 < n; ++i) {
            const double below = beside_[i + 1], next = diagonal_[i + 1] - at, after = i + 2 < n ? beside_[i + 2] : 0.0;
            if (std::fabs(u0[i]) >= std::fabs(below)) {
                if (std::fabs(u0[i]) < tiny) u0[i] = tiny;
                factor[i] = below / u0[i];
                u0[i + 1] = next - factor[i] * u1[i];
                u1[i + 1] = after;
            } else {
                swapped[i] = 1;
                factor[i] = u0[i] / below;
                u0[i] = below;
                const double old = u1[i];
                u1[i] = next, u2[i] = after;
                u0[i + 1] = old - factor[i] * next;
                u1[i + 1] = -factor[i] * after;
            }
        }
        if (std::fabs(u0[n - 1]) < tiny) u0[n - 1] = tiny;
        for (int turn = 0; turn < 3; ++turn) {
            for (int i = 0; i + 1 < n; ++i) {
                if (swapped[i]) std::swap(x[i], x[i + 1]);
                x[i + 1] -= factor[i] * x[i];
            }
            for (int i = n - 1; i >= 0; --i) {
                double sum = x[i];
                if (i + 1 < n) sum -= u1[i] * x[i + 1];
                if (i + 2 < n) sum -= u2[i] * x[i + 2];
                x[i] = sum / u0[i];
            }
            shorten(x);
            for (int b = 0; b < m; ++b) {
                const double* other = &vectors[static_cast<size_t>(b) * n];
                double along = 0;
                for (int i = 0; i < n; ++i) along += other[i] * x[i];
                for (int i = 0; i < n; ++i) x[i] -= along * other[i];
            }
            shorten(x);
        }
    }

    void shorten(double* x) const {
        double most = 0, norm = 0;
        for (int i = 0; i < n_; ++i) most = std::max(most, std::fabs(x[i]));
        if (!(most > 0) || !std::isfinite(most)) return;
        for (int i = 0; i < n_; ++i) x[i] /= most, norm += x[i] * x[i];
        norm = std::sqrt(norm);
        for (int i = 0; i < n_; ++i) x[i] /= norm;
    }

    void turn_back(const std::vector<double>& A, double* x) const {
        for (int k = n_ - 3; k >= 0; --k) {
            if (beta_[k] == 0) continue;
            double along = 0;
            for (int i = k + 1; i < n_; ++i) along += A[static_cast<size_t>(i) * n_ + k] * x[i];
            along *= beta_[k];
            for (int i = k + 1; i < n_; ++i) x[i] -= along * A[static_cast<size_t>(i) * n_ + k];
        }
    }
};

}  // namespace exact
}  // namespace unpooled
