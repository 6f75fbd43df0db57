// Lines of plain numbers to an array: the fast way through a CSV file, which ../../plain_numbers.py calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unpooled::text {

struct Points {
    bool any = false;   // a digit, a point, a digit
    bool sure = false;  // one that cannot divide thousands: 1.5, 1.2345, 1234.567 or 0.123, and not 1.234
};

// Rows of `width` cells in whole lines of text, written to `out`, which has room for `most` rows. -1 if any cell is
// something else than [+-]digits[.digits][e[+-]digits], begins with a zero before a digit (a code), or does not fit in
// a double; if a line has another number of cells; or if this compiler's library cannot read numbers.
int64_t plain_numbers(const char* text, size_t size, char delimiter, int64_t width, double* out, int64_t most,
                      Points& points);

}  // namespace unpooled::text
