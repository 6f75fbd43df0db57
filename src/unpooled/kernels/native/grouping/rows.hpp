// The rows to be grouped, and sums over columns in one fixed order: four partial sums, column j in number j mod 4, then
// (0 + 1) + (2 + 3). Buffers are padded with zeros to a multiple of four columns. The numpy reference adds up in the same
// order, so that both give the same bits on every machine.
#pragma once
#include <cstdint>
#include <cstring>

namespace unpooled {
namespace grouping {

using Lanes = double __attribute__((vector_size(32)));

inline Lanes lanes(const double* p) {
    Lanes v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

inline void put(double* p, Lanes v) { std::memcpy(p, &v, sizeof v); }

inline double total(Lanes v) { return (v[0] + v[1]) + (v[2] + v[3]); }

inline double dot(const double* a, const double* b, int width) {
    Lanes sum{};
    for (int j = 0; j < width; j += 4) sum += lanes(a + j) * lanes(b + j);
    return total(sum);
}

// The squared distance.
inline double apart(const double* a, const double* b, int width) {
    Lanes sum{};
    for (int j = 0; j < width; j += 4) {
        const Lanes r = lanes(a + j) - lanes(b + j);
        sum += r * r;
    }
    return total(sum);
}

inline void add(double* to, const double* a, int width) {
    for (int j = 0; j < width; j += 4) put(to + j, lanes(to + j) + lanes(a + j));
}

inline void subtract(double* to, const double* a, int width) {
    for (int j = 0; j < width; j += 4) put(to + j, lanes(to + j) - lanes(a + j));
}

inline void divide(double* to, double by, int width) {
    for (int j = 0; j < width; ++j) to[j] /= by;
}

constexpr int kAhead = 12;  // rows between asking for one and using it

struct Table {
    const float* single;   // (n, columns), or null
    const double* full;    // (n, columns) where single is null
    int64_t n;
    int columns;
    int width;             // columns, padded to a multiple of four

    // A row in double, padded.
    void load(int64_t i, double* out) const {
        if (single) {
            const float* row = single + i * columns;
            for (int j = 0; j < columns; ++j) out[j] = row[j];
        } else {
            std::memcpy(out, full + i * columns, sizeof(double) * columns);
        }
        for (int j = columns; j < width; ++j) out[j] = 0.0;
    }

    // Tells the processor that a row is soon to be loaded.
    void fetch(int64_t i) const {
        const char* row = single ? reinterpret_cast<const char*>(single + i * columns)
                                 : reinterpret_cast<const char*>(full + i * columns);
        __builtin_prefetch(row);
        __builtin_prefetch(row + 64);
    }

    // Number `at` of a list, and soon the one kAhead places later.
    void load_ahead(const int32_t* rows, int64_t at, int64_t count, double* out) const {
        if (at + kAhead < count) fetch(rows[at + kAhead]);
        load(rows[at], out);
    }

    // The mean of rows, added up in their order.
    void mean(const int32_t* rows, int64_t count, double* out, double* room) const {
        for (int j = 0; j < width; ++j) out[j] = 0.0;
        for (int64_t i = 0; i < count; ++i) {
            load_ahead(rows, i, count, room);
            add(out, room, width);
        }
        divide(out, static_cast<double>(count), width);
    }
};

}  // namespace grouping
}  // namespace unpooled
