#include "plain_numbers.hpp"

#include <charconv>
#include <version>

namespace unpooled::text {

namespace {

#if defined(__cpp_lib_to_chars)
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

inline const char* past_digits(const char* at, const char* end) {
    while (at < end && is_digit(*at)) ++at;
    return at;
}

// The end of the number that begins at `at`; nullptr if none does.
const char* read_cell(const char* at, const char* end, double& value, Points& points) {
    if (at + 1 < end && at[0] == '0' && is_digit(at[1])) return nullptr;  // a code
    if (at < end && *at == '+') {
        ++at;
        if (at == end || (!is_digit(*at) && *at != '.')) return nullptr;
    }
    const char* whole = at + (at < end && *at == '-');
    const char* point = past_digits(whole, end);
    const char* stop = point;
    int64_t before = point - whole, after = 0;
    if (point < end && *point == '.') {
        stop = past_digits(point + 1, end);
        after = stop - point - 1;
    }
    if (before + after == 0) return nullptr;
    if (before && after) {
        points.any = true;
        points.sure |= after != 3 || before >= 4 || (before == 1 && *whole == '0');
    }
    if (stop < end && (*stop == 'e' || *stop == 'E')) {
        const char* power = stop + 1 + (stop + 1 < end && (stop[1] == '-' || stop[1] == '+'));
        stop = past_digits(power, end);
        if (stop == power) return nullptr;
    }
    const auto read = std::from_chars(at, stop, value);
    return read.ec == std::errc() && read.ptr == stop ? stop : nullptr;
}
#endif

}  // namespace

int64_t plain_numbers(const char* text, size_t size, char delimiter, int64_t width, double* out, int64_t most,
                      Points& points) {
#if defined(__cpp_lib_to_chars)
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
#else
    (void)text, (void)size, (void)delimiter, (void)width, (void)out, (void)most, (void)points;
    return -1;
#endif
}

}  // namespace unpooled::text
