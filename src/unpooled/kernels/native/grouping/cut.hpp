// The first groups: rows are cut in two across their principal axis, where the squared error falls most, until no part
// can be cut.
#pragma once
#include <numeric>
#include <utility>
#include <vector>

#include "axis.hpp"
#include "groups.hpp"
#include "loops.hpp"
#include "watch.hpp"

namespace unpooled {
namespace grouping {

constexpr int64_t kSample = 512;   // the axis of a large part is that of so many of its rows, or a few more
constexpr int kCutTurns = 8;       // of the power iteration
constexpr int kLarge = 32;         // from so many times `least` rows, an eighth is cut off at least: depth stays log n
constexpr double kFlat = 1e-24;    // a gain below this share of the numbers' size is rounding: rows are alike

class Cutter {
public:
    Cutter(const Table& table, int least, Watch& watch)
        : table_(table), least_(least), width_(table.width), watch_(watch), rows_(table.n), along_(table.n),
          mean_(width_), axis_(width_), row_(width_), sum_(width_) {
        std::iota(rows_.begin(), rows_.end(), 0);
    }

    void run(Groups& groups) {
        std::vector<std::pair<int64_t, int64_t>> waiting{{0, table_.n}};
        int64_t done = 0;
        while (!waiting.empty()) {
            const auto [begin, end] = waiting.back();
            waiting.pop_back();
            const int64_t count = end - begin;
            if (count < 2 * static_cast<int64_t>(least_)) {
                groups.fill(groups.open(), &rows_[begin], static_cast<int>(count));
                done += count;
                continue;
            }
            const int64_t cut = begin + split(&rows_[begin], count);
            waiting.emplace_back(cut, end);
            waiting.emplace_back(begin, cut);
            watch_.after(count * width_ * 8, kCutShare * done / table_.n);
        }
    }

private:
    // Puts the rows in order along their axis; gives the number of those in the first part.
    int64_t split(int32_t* rows, int64_t count) {
        table_.mean(rows, count, mean_.data(), row_.data());
        find_axis(rows, count);
        for (int64_t i = 0; i < count; ++i) {
            load_centred(rows, i, count);
            along_[i] = {dot(row_.data(), axis_.data(), width_), rows[i]};
        }
        sort_along(along_.data(), count);
        for (int64_t i = 0; i < count; ++i) rows[i] = along_[i].row;
        return best_cut(rows, count);
    }

    void load_centred(const int32_t* rows, int64_t at, int64_t count) {
        table_.load_ahead(rows, at, count, row_.data());
        subtract(row_.data(), mean_.data(), width_);
    }

    // From the row farthest from the mean.
    void find_axis(const int32_t* rows, int64_t count) {
        const int64_t stride = count < 2 * kSample ? 1 : count / kSample;
        const int64_t used = (count + stride - 1) / stride;
        sample_.resize(static_cast<size_t>(used) * width_);
        double farthest = -1;
        for (int64_t i = 0; i < used; ++i) {
            load_centred(rows, i * stride, count);
            std::copy(row_.begin(), row_.end(), sample_.begin() + i * width_);
            const double away = dot(row_.data(), row_.data(), width_);
            if (away > farthest) {
                farthest = away;
                axis_ = row_;
            }
        }
        turn_to_principal(sample_.data(), used, width_, kCutTurns, axis_.data(), sum_.data());
    }

    // The squared error falls by |sum of the first part|^2 (1 / first + 1 / others): rows are centred.
    int64_t best_cut(const int32_t* rows, int64_t count) {
        const int64_t low = count < static_cast<int64_t>(kLarge) * least_ ? least_ : count / 8;
        std::fill(sum_.begin(), sum_.end(), 0.0);
        double most = kFlat * count * dot(mean_.data(), mean_.data(), width_);
        int64_t best = count / 2;
        for (int64_t first = 1; first <= count - low; ++first) {
            load_centred(rows, first - 1, count);
            add(sum_.data(), row_.data(), width_);
            if (first < low) continue;
            const double gain = dot(sum_.data(), sum_.data(), width_) * (1.0 / first + 1.0 / (count - first));
            if (gain > most) {
                most = gain;
                best = first;
            }
        }
        return best;
    }

    const Table& table_;
    const int least_, width_;
    Watch& watch_;
    std::vector<int32_t> rows_;
    std::vector<Along> along_;
    std::vector<double> mean_, axis_, row_, sum_, sample_;
};

}  // namespace grouping
}  // namespace unpooled
