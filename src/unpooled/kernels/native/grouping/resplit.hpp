// A group and one or two beside it, split anew: all their rows in order along their common axis, in the best consecutive
// parts. There may be fewer or more groups after it.
#pragma once
#include <algorithm>
#include <vector>

#include "axis.hpp"
#include "groups.hpp"
#include "loops.hpp"
#include "parts.hpp"

namespace unpooled {
namespace grouping {

constexpr int kResplitTurns = 4;          // of the power iteration, which starts between two means
constexpr double kRounding = 1e-12;       // a gain below this share of what is compared is rounding

class Resplit {
public:
    Resplit(const Table& table, Groups& groups)
        : table_(table), groups_(groups), width_(table.width), mean_(width_), axis_(width_), room_(width_) {}

    // By how much the squared error falls; 0 if the groups stay as they are.
    double attempt(const int* which, int count, double worth) {
        const int rows = gather(which, count);
        const double before = explained(which, count);
        std::copy_n(groups_.mean(which[1]), width_, axis_.begin());
        subtract(axis_.data(), groups_.mean(which[0]), width_);
        turn_to_principal(x_.data(), rows, width_, kResplitTurns, axis_.data(), room_.data());
        along_.resize(rows);
        for (int i = 0; i < rows; ++i) along_[i] = {dot(&x_[i * width_], axis_.data(), width_), i};
        sort_along(along_.data(), rows);
        sums_.assign((rows + 1) * width_, 0.0);
        for (int i = 0; i < rows; ++i) {
            std::copy_n(&sums_[i * width_], width_, &sums_[(i + 1) * width_]);
            add(&sums_[(i + 1) * width_], &x_[along_[i].row * width_], width_);
        }
        const double after = parts_.find(sums_.data(), rows, width_, groups_.least);
        if (!(after - before > worth + kRounding * before)) return 0;
        replace(which, count, rows);
        return after - before;
    }

private:
    // The rows of the groups, centred.
    int gather(const int* which, int count) {
        ids_.clear();
        for (int q = 0; q < count; ++q)
            ids_.insert(ids_.end(), groups_.members(which[q]), groups_.members(which[q]) + groups_.size(which[q]));
        const int rows = static_cast<int>(ids_.size());
        x_.resize(rows * width_);
        std::fill(mean_.begin(), mean_.end(), 0.0);
        for (int i = 0; i < rows; ++i) {
            table_.load(ids_[i], &x_[i * width_]);
            add(mean_.data(), &x_[i * width_], width_);
        }
        divide(mean_.data(), rows, width_);
        for (int i = 0; i < rows; ++i) subtract(&x_[i * width_], mean_.data(), width_);
        return rows;
    }

    // The sum over the groups as they are of |sum|^2 / size.
    double explained(const int* which, int count) {
        double value = 0;
        int at = 0;
        for (int q = 0; q < count; ++q) {
            std::fill(room_.begin(), room_.end(), 0.0);
            for (int i = 0; i < groups_.size(which[q]); ++i) add(room_.data(), &x_[at++ * width_], width_);
            value += dot(room_.data(), room_.data(), width_) / groups_.size(which[q]);
        }
        return value;
    }

    void replace(const int* which, int count, int rows) {
        sorted_.resize(rows);
        for (int i = 0; i < rows; ++i) sorted_[i] = ids_[along_[i].row];
        const std::vector<int32_t>& ends = parts_.ends();
        const int parts = static_cast<int>(ends.size());
        int begin = 0;
        for (int part = 0; part < parts; ++part) {
            const int end = ends[parts - 1 - part];
            groups_.fill(part < count ? which[part] : groups_.open(), &sorted_[begin], end - begin);
            begin = end;
        }
        for (int part = parts; part < count; ++part) groups_.close(which[part]);
    }

    const Table& table_;
    Groups& groups_;
    const int width_;
    Parts parts_;
    std::vector<double> mean_, axis_, room_, x_, sums_;
    std::vector<Along> along_;
    std::vector<int32_t> ids_, sorted_;
};

}  // namespace grouping
}  // namespace unpooled
