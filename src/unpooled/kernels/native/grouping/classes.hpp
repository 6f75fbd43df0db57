// Classes of rows (values of sensitive columns), and how far a group exceeds the largest share that each may have.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace unpooled {
namespace grouping {

constexpr double kSlack = 1e-9;  // a count that equals its limit up to rounding is within it

// Of the rows of a group that have a class in a column, at most the share limits[v] may be of class v.
struct Classes {
    const int32_t* of;      // (n, columns) the class of every row, -1: none
    const int32_t* first;   // (columns + 1,) column c has the classes first[c] .. first[c + 1] - 1
    const double* limits;   // by class
    int columns = 0;        // 0: no rule

    const int32_t* row(int64_t i) const { return of + i * columns; }
    int count() const { return first[columns]; }
};

// By group, its rows of every class, and the excess: how many rows of each class are above the limit, added up.
class Excess {
public:
    explicit Excess(const Classes& classes) : classes_(classes) {}

    void resize(int groups) {
        counts_.resize(static_cast<size_t>(groups) * classes_.count());
        known_.resize(static_cast<size_t>(groups) * classes_.columns);
        excess_.resize(groups);
    }

    void fill(int g, const int32_t* rows, int64_t size) {
        int32_t *counts = of(g), *known = known_of(g);
        std::fill_n(counts, classes_.count(), 0);
        std::fill_n(known, classes_.columns, 0);
        for (int64_t i = 0; i < size; ++i) add(classes_.row(rows[i]), 1, counts, known);
        excess_[g] = 0;
        for (int c = 0; c < classes_.columns; ++c) excess_[g] += in_column(c, counts, known[c], -1, -1);
    }

    int64_t in(int g) const { return excess_[g]; }

    // The excess of group g after row `out` left it and row `enters` came; -1: nobody.
    int64_t after(int g, int64_t out, int64_t enters) const {
        const int32_t *counts = of(g), *known = known_of(g);
        const int32_t* gone = out < 0 ? nullptr : classes_.row(out);
        const int32_t* come = enters < 0 ? nullptr : classes_.row(enters);
        int64_t total = excess_[g];
        for (int c = 0; c < classes_.columns; ++c) {
            const int less = gone ? gone[c] : -1, more = come ? come[c] : -1;
            if (less == more) continue;
            if (less >= 0 && more >= 0) {
                total += above(less, counts[less] - 1, known[c]) - above(less, counts[less], known[c]);
                total += above(more, counts[more] + 1, known[c]) - above(more, counts[more], known[c]);
            } else {
                total -= in_column(c, counts, known[c], -1, -1);
                total += in_column(c, counts, known[c] + (more >= 0) - (less >= 0), less, more);
            }
        }
        return total;
    }

    void change(int g, int64_t out, int64_t enters) {
        excess_[g] = after(g, out, enters);
        if (out >= 0) add(classes_.row(out), -1, of(g), known_of(g));
        if (enters >= 0) add(classes_.row(enters), 1, of(g), known_of(g));
    }

private:
    int32_t* of(int g) { return &counts_[static_cast<size_t>(g) * classes_.count()]; }
    const int32_t* of(int g) const { return &counts_[static_cast<size_t>(g) * classes_.count()]; }
    int32_t* known_of(int g) { return &known_[static_cast<size_t>(g) * classes_.columns]; }
    const int32_t* known_of(int g) const { return &known_[static_cast<size_t>(g) * classes_.columns]; }

    void add(const int32_t* row, int times, int32_t* counts, int32_t* known) const {
        for (int c = 0; c < classes_.columns; ++c) {
            if (row[c] < 0) continue;
            counts[row[c]] += times;
            known[c] += times;
        }
    }

    int64_t above(int v, int count, int known) const {
        return std::max<int64_t>(0, count - static_cast<int64_t>(std::floor(classes_.limits[v] * known + kSlack)));
    }

    int64_t in_column(int c, const int32_t* counts, int known, int less, int more) const {
        int64_t total = 0;
        for (int v = classes_.first[c]; v < classes_.first[c + 1]; ++v)
            total += above(v, counts[v] - (v == less) + (v == more), known);
        return total;
    }

    const Classes classes_;
    std::vector<int32_t> counts_, known_;
    std::vector<int64_t> excess_;
};

}  // namespace grouping
}  // namespace unpooled
