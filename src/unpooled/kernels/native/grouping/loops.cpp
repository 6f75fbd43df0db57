// The loops in which the time is spent. Where the compiler and the system can do it, each is compiled twice, the second
// time for AVX2: the same operations in the same order, so the bits are the same.
#include "loops.hpp"

#include <algorithm>
#include <cmath>

#include "rows.hpp"

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define UNPOOLED_TWICE __attribute__((target_clones("avx2", "default")))
#else
#define UNPOOLED_TWICE
#endif

namespace unpooled {
namespace grouping {

UNPOOLED_TWICE
void distances(const double* rows, int count, int width, const double* point, double* out) {
    for (int i = 0; i < count; ++i) out[i] = apart(rows + static_cast<size_t>(i) * width, point, width);
}

UNPOOLED_TWICE
void turn_to_principal(const double* x, int64_t count, int width, int turns, double* axis, double* room) {
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

// d(x, b) - d(x, a) + d(y, a) - d(y, b) - |x - y|^2 (1 / n_a + 1 / n_b); and |x - y|^2 is at most twice the sum of their
// squared distances from any point, which saves most of them.
UNPOOLED_TWICE
int best_swap(const Swaps& s, double& change) {
    int best = -1;
    const double away = s.there - s.here, bound = 2.000001 * s.both;
    for (int r = 0; r < s.count; ++r) {
        const double plain = away + (s.from[r] - s.at[r]);
        if (plain - bound * std::min(s.here + s.from[r], s.there + s.at[r]) >= change) continue;
        const double found = plain - s.both * apart(s.row, s.rows + static_cast<size_t>(r) * s.width, s.width);
        if (found < change) {
            change = found;
            best = r;
        }
    }
    return best;
}

}  // namespace grouping
}  // namespace unpooled
