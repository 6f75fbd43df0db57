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

    void after(int64_t work, double share) {
        work_ += work;
        if (work_ < kWorkBetween) return;
        work_ = 0;
        tell_(share);
    }

private:
    std::function<void(double)> tell_;
    int64_t work_ = 0;
};

}  // namespace grouping
}  // namespace unpooled
