// Rows of float into lanes: four columns of as many rows as a vector has lanes, at a time.
//
// fours() reads four columns of every fourth row into the quarters of a vector, and each_column() turns four such
// vectors, of rows 0, 1, 2, 3 from there on, into four columns. Nothing crosses from one quarter into another, which is
// what processors do fastest.
#pragma once
#include "simd.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// Vectors of twice the length.
UNPOOLED_INLINE VectorOf<float, 8>::type twice(F4 a, F4 b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
}
UNPOOLED_INLINE VectorOf<double, 8>::type twice(V4 a, V4 b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
}
UNPOOLED_INLINE VectorOf<float, 16>::type twice(VectorOf<float, 8>::type a, VectorOf<float, 8>::type b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Four columns of rows 0, 4, 8, ... from x on, side by side in a vector of L.
template <int L>
UNPOOLED_INLINE auto fours(const float* x, int64_t step) {
    if constexpr (L == 4)
        return load<F4>(x);
    else
        return twice(fours<L / 2>(x, step), fours<L / 2>(x + L / 2 * step, step));
}

// The lanes of two vectors in turn, four lanes by four: the lower, or the higher, two of each four.
template <bool HIGH, class V>
UNPOOLED_INLINE V in_turn(V a, V b) {
    constexpr int L = sizeof(V) / sizeof(float), h = HIGH ? 2 : 0;
    if constexpr (L == 4)
        return __builtin_shufflevector(a, b, h, h + 4, h + 1, h + 5);
    else if constexpr (L == 8)
        return __builtin_shufflevector(a, b, h, h + 8, h + 1, h + 9, h + 4, h + 12, h + 5, h + 13);
    else
        return __builtin_shufflevector(a, b, h, h + 16, h + 1, h + 17, h + 4, h + 20, h + 5, h + 21, h + 8, h + 24, h + 9,
                                       h + 25, h + 12, h + 28, h + 13, h + 29);
}

// Calls visit(j, column j of the rows) for j from 0 to 3; a holds rows 0, 4, 8, ... as fours() reads them, b rows 1, 5,
// 9, ..., c rows 2, 6, 10, ..., e rows 3, 7, 11, ...
template <class V, class Visit>
UNPOOLED_INLINE void each_column(V a, V b, V c, V e, Visit&& visit) {
    const V ac0 = in_turn<false>(a, c), ac1 = in_turn<true>(a, c), be0 = in_turn<false>(b, e), be1 = in_turn<true>(b, e);
    visit(0, in_turn<false>(ac0, be0));
    visit(1, in_turn<true>(ac0, be0));
    visit(2, in_turn<false>(ac1, be1));
    visit(3, in_turn<true>(ac1, be1));
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
