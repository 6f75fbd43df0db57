// Tells how much is done, now and then. What it calls may throw, which ends the grouping.
#pragma once
#include <cstdint>
#include <functional>
#include <utility>

namespace unpooled {
namespace grouping {

constexpr double kCutShare = 0.15;              // of the time, for the first groups
constexpr int64_t kWorkBetween = 40'000'000;    // multiply-adds, roughly

class Watch {
public:
    explicit Watch(std::function<void(double)> tell) : tell_(std::move(tell)) {}

    // From now on shares are those of a part of the whole.
    void part(double begin, double end) { begin_ = begin, length_ = end - begin; }

    void after(int64_t work, double share) {
        work_ += work;
        if (work_ < kWorkBetween) return;
        work_ = 0;
        tell_(begin_ + length_ * share);
    }

private:
    double begin_ = 0, length_ = 1;
    std::function<void(double)> tell_;
    int64_t work_ = 0;
};

}  // namespace grouping
}  // namespace unpooled
