// Microaggregation: rows in groups of least to 2 least - 1 that lie close.
#pragma once
#include <cstdint>
#include <functional>

#include "classes.hpp"

namespace unpooled {
namespace grouping {

struct Task {
    const float* single;   // (n, columns), or null
    const double* full;    // (n, columns) where single is null
    int64_t n;             // at least 2 least, below 2^31
    int columns;
    int least;             // at least 2
    Classes classes;       // all rows together are within its limits
    std::function<void(double)> tell;  // is called with the share that is done; may throw
};

// Fills labels (n,) with 0 .. groups - 1. With classes, no group exceeds a limit. One thread; the bits depend on the rows alone, not on the machine.
void group(const Task& task, int64_t* labels);

}  // namespace grouping
}  // namespace unpooled
