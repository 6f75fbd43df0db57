// Rows in the directions of their spread.
#pragma once
#include <cmath>
#include <vector>

#include "rounding.hpp"
#include "surplus.hpp"

namespace unpooled {
namespace exact {

// Turn the rows to their principal axes, where few columns hold most of the spread and boxes are narrow in the rest. The
// matrix is a rotation to within 2^-42, or rows stay as they are.
inline void turn(Budgeted& rows) {
    const int n = rows.n, d = rows.d;
    std::vector<double> C(d * d, 0.0), R(d * d, 0.0);
    for (int i = 0; i < n; ++i)
        for (int a = 0; a < d; ++a)
            for (int b = 0; b < d; ++b) C[a * d + b] += rows.w[i] * rows.row(i)[a] * rows.row(i)[b];
    for (int a = 0; a < d; ++a) R[a * d + a] = 1;
    for (int sweep = 0; sweep < 30; ++sweep) {  // Jacobi's method
        double off = 0, all = 0;
        for (int a = 0; a < d; ++a)
            for (int b = 0; b < d; ++b) (a == b ? all : off) += std::fabs(C[a * d + b]);
        if (!(off > 1e-12 * all)) break;
        for (int a = 0; a < d; ++a)
            for (int b = a + 1; b < d; ++b) {
                if (C[a * d + b] == 0) continue;
                const double theta = (C[b * d + b] - C[a * d + a]) / (2 * C[a * d + b]);
                const double t = (theta < 0 ? -1.0 : 1.0) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
                const double c = 1 / std::sqrt(t * t + 1), s = t * c;
                for (int m = 0; m < d; ++m) {
                    const double p = C[m * d + a], q = C[m * d + b];
                    C[m * d + a] = c * p - s * q, C[m * d + b] = s * p + c * q;
                }
                for (int m = 0; m < d; ++m) {
                    const double p = C[a * d + m], q = C[b * d + m];
                    C[a * d + m] = c * p - s * q, C[b * d + m] = s * p + c * q;
                }
                for (int m = 0; m < d; ++m) {
                    const double p = R[m * d + a], q = R[m * d + b];
                    R[m * d + a] = c * p - s * q, R[m * d + b] = s * p + c * q;
                }
            }
    }
    double error = 0;  // of R R^T against the identity
    for (int a = 0; a < d; ++a)
        for (int b = 0; b < d; ++b) {
            double sum = a == b ? -1.0 : 0.0;
            for (int m = 0; m < d; ++m) sum += R[a * d + m] * R[b * d + m];
            error += std::fabs(sum) + rounding(2.0 * d + 8);
        }
    if (!(error < 0x1.0p-42)) return;
    std::vector<double> turned(d);
    for (int i = 0; i < n; ++i) {
        double* row = &rows.x[static_cast<size_t>(i) * d];
        for (int a = 0; a < d; ++a) {
            turned[a] = 0;
            for (int m = 0; m < d; ++m) turned[a] += R[m * d + a] * row[m];
        }
        std::copy(turned.begin(), turned.end(), row);
    }
}

}  // namespace exact
}  // namespace unpooled
