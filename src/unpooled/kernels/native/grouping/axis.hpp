// The principal axis of some rows, approximately, and the order of rows along it.
#pragma once
#include <algorithm>
#include <cmath>

#include "rows.hpp"

namespace unpooled {
namespace grouping {

struct Along {
    double at;
    int32_t row;
};

// Ties by number of row.
inline void sort_along(Along* rows, int64_t count) {
    std::sort(rows, rows + count,
              [](const Along& a, const Along& b) { return a.at < b.at || (a.at == b.at && a.row < b.row); });
}

// Power iteration on centred rows x (count, width), from the axis given; `room` has width places.
inline void turn_to_principal(const double* x, int64_t count, int width, int turns, double* axis, double* room) {
    for (int turn = 0; turn < turns; ++turn) {
        for (int j = 0; j < width; ++j) room[j] = 0.0;
        for (int64_t i = 0; i < count; ++i) {
            const double* row = x + i * width;
            const double by = dot(row, axis, width);
            const Lanes times{by, by, by, by};
            for (int j = 0; j < width; j += 4) put(room + j, lanes(room + j) + times * lanes(row + j));
        }
        const double size = std::sqrt(dot(room, room, width));
        if (!(size > 0)) return;
        for (int j = 0; j < width; ++j) axis[j] = room[j] / size;
    }
}

}  // namespace grouping
}  // namespace unpooled
