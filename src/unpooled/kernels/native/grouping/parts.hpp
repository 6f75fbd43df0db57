// Rows in a given order, cut into consecutive parts of least to 2 least - 1 rows with the least squared error.
#pragma once
#include <limits>
#include <vector>

#include "rows.hpp"

namespace unpooled {
namespace grouping {

class Parts {
public:
    // `sums` (count + 1, width): sums of the first 0, 1, .. count rows, about their mean. The squared error is the rows'
    // own squares less the sum over parts of |sum|^2 / size, which is what this makes largest; gives that.
    double find(const double* sums, int64_t count, int width, int least) {
        value_.assign(count + 1, -std::numeric_limits<double>::infinity());
        from_.assign(count + 1, 0);
        value_[0] = 0;
        for (int64_t end = least; end <= count; ++end) {
            if (end < count && count - end < least) continue;  // too few would be left
            for (int size = least; size < 2 * least && size <= end; ++size) {
                const int64_t begin = end - size;
                if (begin > 0 && begin < least) continue;
                const double value = value_[begin] + apart(sums + end * width, sums + begin * width, width) / size;
                if (value > value_[end]) {
                    value_[end] = value;
                    from_[end] = static_cast<int32_t>(begin);
                }
            }
        }
        ends_.clear();
        for (int64_t end = count; end > 0; end = from_[end]) ends_.push_back(static_cast<int32_t>(end));
        return value_[count];
    }

    // After `find`: where each part ends, the last part first.
    const std::vector<int32_t>& ends() const { return ends_; }

private:
    std::vector<double> value_;
    std::vector<int32_t> from_, ends_;
};

}  // namespace grouping
}  // namespace unpooled
