// Random numbers: xoshiro256** seeded by splitmix64, the same stream as rng.py, so that compiled and numpy kernels make
// the same draws.
#pragma once
#include <cstdint>

namespace unpooled {
namespace UNPOOLED_ISA {

class Random {
public:
    explicit Random(uint64_t seed) {
        for (uint64_t& word : s_) {
            seed += 0x9E3779B97F4A7C15u;
            uint64_t z = seed;
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
            z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
            word = z ^ (z >> 31);
        }
    }

    uint64_t draw() {
        const uint64_t result = rotl(s_[1] * 5, 7) * 9;
        const uint64_t t = s_[1] << 17;
        s_[2] ^= s_[0];
        s_[3] ^= s_[1];
        s_[1] ^= s_[2];
        s_[0] ^= s_[3];
        s_[2] ^= t;
        s_[3] = rotl(s_[3], 45);
        return result;
    }

    double uniform() { return static_cast<double>(draw() >> 11) * 0x1.0p-53; }

    int64_t below(int64_t n) { return static_cast<int64_t>(uniform() * static_cast<double>(n)); }

private:
    static uint64_t rotl(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

    uint64_t s_[4];
};

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
