// Bounds on rounding errors. Every number that the solver claims is computed in float64 and then moved by such a bound,
// so that it holds for the rows as they were given, exactly.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

namespace unpooled {
namespace exact {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kTiny = 0x1.0p-900;  // above all errors of underflow in a cluster's cost
constexpr double kFaint = 0x1.0p-800;  // smaller squared distances count as zero in lower bounds
constexpr double kFloor = 0x1.0p-700;  // above the sum of all that counts as zero

// The relative error of a result after so many roundings, one after the other.
constexpr double rounding(double operations) { return 1.01 * 0x1.0p-53 * operations; }

// A sum of products with an error of a few units in the last place, however much cancels.
class ExactSum {
public:
    void add(double a, double b) {
        const double product = a * b;
        add(product);
        low_ += std::fma(a, b, -product);
    }
    double value() const { return high_ + low_; }

private:
    double high_ = 0, low_ = 0;

    void add(double x) {
        const double sum = high_ + x, part = sum - high_;
        low_ += (high_ - (sum - part)) + (x - part);
        high_ = sum;
    }
};

// Powers of two that bring rows and weights of any unit to where their squares and products are float64 numbers. Usual
// ones stay as they are.
struct Units {
    int rows = 0, weights = 0;

    static int power(double size) { return size > 1e-30 && size < 1e30 ? 0 : std::ilogb(size); }

    // The value in the units that were given, not above it or not below it.
    double down(double value) const {
        if (!(rows || weights) || value == 0 || !std::isfinite(value)) return value;
        const double back = std::ldexp(value, 2 * rows + weights);
        return std::fabs(back) > 1e-300 && std::isfinite(back) ? back : std::nextafter(back, -kInf);
    }
    double up(double value) const { return -down(-value); }
};

}  // namespace exact
}  // namespace unpooled
