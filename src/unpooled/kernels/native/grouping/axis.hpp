// The order of rows along an axis.
#pragma once
#include <algorithm>
#include <cstdint>

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

}  // namespace grouping
}  // namespace unpooled
