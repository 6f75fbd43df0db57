// The loops in which the time is spent.
#pragma once
#include <cstdint>

namespace unpooled {
namespace grouping {

// Squared distances of rows (count, width) from a point.
void distances(const double* rows, int count, int width, const double* point, double* out);

// Power iteration on centred rows x (count, width), from the axis given; `room` has width places.
void turn_to_principal(const double* x, int64_t count, int width, int turns, double* axis, double* room);

// What swapping a row of group a with a row of group b would change.
struct Swaps {
    const double* row;        // x (width,)
    double here, there;       // its squared distances from the means of a and of b
    const double* rows;       // y of b (count, width)
    const double* from;       // (count,) their squared distances from the mean of a
    const double* at;         // (count,) and from that of b
    int count, width;
    double both;              // 1 / n_a + 1 / n_b
};

// The first row whose swap changes the squared error by least, if that is below `change`, which it then is; else -1.
int best_swap(const Swaps& swaps, double& change);

}  // namespace grouping
}  // namespace unpooled
