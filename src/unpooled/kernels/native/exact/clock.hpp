// A limit of time.
#pragma once
#include <chrono>

namespace unpooled {
namespace exact {

class Clock {
public:
    explicit Clock(double seconds) : limited_(seconds < 1e9) {
        if (limited_) {
            using namespace std::chrono;
            end_ = steady_clock::now() + duration_cast<steady_clock::duration>(duration<double>(seconds));
        }
    }
    bool over() const { return limited_ && std::chrono::steady_clock::now() >= end_; }

private:
    bool limited_;
    std::chrono::steady_clock::time_point end_;
};

}  // namespace exact
}  // namespace unpooled
