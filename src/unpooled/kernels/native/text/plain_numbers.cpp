#include "plain_numbers.hpp"

#include <charconv>
#include <cstring>
#include <version>

// Clang's library reads float64 from version 20 on and does not say so by the standard's macro, which covers long
// double; on macOS it does where the oldest system that is built for has it.
#if defined(__cpp_lib_to_chars)
#define UNPOOLED_FROM_CHARS 1
#elif defined(_LIBCPP_AVAILABILITY_HAS_FROM_CHARS_FLOATING_POINT)
#define UNPOOLED_FROM_CHARS _LIBCPP_AVAILABILITY_HAS_FROM_CHARS_FLOATING_POINT
#else
#define UNPOOLED_FROM_CHARS 0
#endif

namespace unpooled::text {

namespace {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Appends the digits at `at` to `whole`, eight at a time, and gives their end. After 19 digits `whole` means nothing.
inline const char* take_digits(const char* at, const char* end, uint64_t& whole) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (end - at >= 8) {
        uint64_t eight;
        std::memcpy(&eight, at, 8);
        const uint64_t digits = eight - 0x3030303030303030U;
        if (((eight + 0x4646464646464646U) | digits) & 0x8080808080808080U) break;  // one is above 9, or below 0
        uint64_t pairs = digits * 10 + (digits >> 8);
        pairs = ((pairs & 0x000000FF000000FFU) * 0x000F424000000064U +
                 ((pairs >> 16) & 0x000000FF000000FFU) * 0x0000271000000001U) >> 32;
        whole = whole * 100000000 + pairs;
        at += 8;
    }
#endif
    for (; at < end && is_digit(*at); ++at) whole = whole * 10 + static_cast<uint64_t>(*at - '0');
    return at;
}

#if defined(__SIZEOF_INT128__)
// high * 2^64 / divisor, where high < divisor; `rest` is whether a remainder is left.
inline uint64_t divide(uint64_t high, uint64_t low, uint64_t divisor, bool& rest) {
#if defined(__x86_64__)
    uint64_t quotient, remainder;
    __asm__("divq %4" : "=a"(quotient), "=d"(remainder) : "0"(low), "1"(high), "r"(divisor) : "cc");
    rest = remainder != 0;
    return quotient;
#else
    const unsigned __int128 whole = static_cast<unsigned __int128>(high) << 64 | low;
    rest = whole % divisor != 0;
    return static_cast<uint64_t>(whole / divisor);
#endif
}

// whole / 10^places, rounded to the nearest double, ties to even; whole > 0, 0 <= places <= 27. An exact quotient of
// integers: 5^27 fits in 64 bits, a quotient of numbers whose first bits are set has at least 63 bits, of which a double
// takes 53, and what is cut off and the remainder tell on which side of a tie it lies. No such number is subnormal.
inline double ratio(uint64_t whole, int places) {
    static const struct Fives {
        uint64_t power[28];
        Fives() {
            power[0] = 1;
            for (int i = 1; i < 28; ++i) power[i] = 5 * power[i - 1];
        }
    } fives;
    const uint64_t divisor = fives.power[places];
    const int up = __builtin_clzll(whole), down = __builtin_clzll(divisor);
    const uint64_t shifted = whole << up;
    bool rest = false;
    // shifted * 2^63 / (divisor * 2^down)
    uint64_t quotient = divide(shifted >> 1, shifted << 63, divisor << down, rest);
    int power = down - up - 63 - places;
    const int cut = 11 - __builtin_clzll(quotient);
    const uint64_t last = uint64_t{1} << cut, below = quotient & (last - 1), half = last >> 1;
    quotient >>= cut;
    power += cut;
    if (below > half || (below == half && (rest || (quotient & 1)))) ++quotient;
    // quotient <= 2^53 is a double, and the power of two one as well
    const uint64_t bits = static_cast<uint64_t>(power + 1023) << 52;
    double scale;
    std::memcpy(&scale, &bits, 8);
    return static_cast<double>(quotient) * scale;
}
#endif

// The end of the number that begins at `at`; nullptr if none does. Numbers of up to 19 digits are read here, others by
// the library, where it can; both round correctly.
const char* read_cell(const char* at, const char* end, double& value, Points& points) {
    if (at + 1 < end && at[0] == '0' && is_digit(at[1])) return nullptr;  // a code
    if (at < end && *at == '+') {
        ++at;
        if (at == end || (!is_digit(*at) && *at != '.')) return nullptr;
    }
    const bool negative = at < end && *at == '-';
    const char* whole = at + negative;
    uint64_t digits = 0;
    const char* point = take_digits(whole, end, digits);
    const char* stop = point;
    int64_t before = point - whole, after = 0;
    if (point < end && *point == '.') {
        stop = take_digits(point + 1, end, digits);
        after = stop - point - 1;
    }
    if (before + after == 0) return nullptr;
    if (before && after) {
        points.any = true;
        points.sure |= after != 3 || before >= 4 || (before == 1 && *whole == '0');
    }
    const bool raised = stop < end && (*stop == 'e' || *stop == 'E');
    if (raised) {
        const char* power = stop + 1 + (stop + 1 < end && (stop[1] == '-' || stop[1] == '+'));
        uint64_t ignored = 0;
        stop = take_digits(power, end, ignored);
        if (stop == power) return nullptr;
    }
#if defined(__SIZEOF_INT128__)
    if (!raised && before + after <= 19 && after <= 27) {
        const double size = digits ? ratio(digits, static_cast<int>(after)) : 0.0;
        value = negative ? -size : size;
        return stop;
    }
#endif
#if UNPOOLED_FROM_CHARS
    const auto read = std::from_chars(at, stop, value);
    return read.ec == std::errc() && read.ptr == stop ? stop : nullptr;
#else
    return nullptr;
#endif
}

}  // namespace

int64_t plain_numbers(const char* text, size_t size, char delimiter, int64_t width, double* out, int64_t most,
                      Points& points) {
    const char *at = text, *end = text + size;
    int64_t rows = 0;
    while (at < end) {
        if (rows == most) return -1;
        for (int64_t j = 0; j < width; ++j) {
            at = read_cell(at, end, *out++, points);
            if (!at) return -1;
            if (j + 1 < width) {
                if (at == end || *at != delimiter) return -1;
                ++at;
            }
        }
        if (at < end && *at == '\r') ++at;
        if (at < end && *at++ != '\n') return -1;
        ++rows;
    }
    return rows;
}

}  // namespace unpooled::text
