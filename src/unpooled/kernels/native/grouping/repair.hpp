// Groups in which no class exceeds its limit: the cheapest swap of two rows that lowers the excess, with the nearest
// groups first; if no swap lowers it, the two nearest groups become one. A swap lowers the excess and a join the number of
// groups, so this ends; all rows in one group are within the limits, so no excess is left.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "classes.hpp"
#include "rows.hpp"
#include "watch.hpp"

namespace unpooled {
namespace grouping {

constexpr size_t kNearby[] = {12, 144};  // groups among which a swap is looked for, before all of them

class Repair {
public:
    Repair(const Table& table, const Classes& classes, std::vector<std::vector<int32_t>>& groups, Watch& watch)
        : table_(table), width_(table.width), groups_(groups), watch_(watch), excess_(classes),
          means_(groups.size() * width_), x_(width_), y_(width_) {
        excess_.resize(static_cast<int>(groups.size()));
        for (size_t g = 0; g < groups.size(); ++g) fill(static_cast<int>(g));
    }

    void run() {
        const int count = static_cast<int>(groups_.size());
        for (bool again = true; again;) {
            again = false;
            for (int g = 0; g < count; ++g)
                while (!groups_[g].empty() && excess_.in(g) > 0) {
                    order(g);
                    if (near_.empty()) return;
                    if (!swap(g)) join(g, near_[0].group);
                    again = true;
                    watch_.after(work_, static_cast<double>(g) / count);
                }
        }
    }

private:
    struct Near {
        double away;
        int group;
        bool operator<(const Near& other) const {
            return away < other.away || (away == other.away && group < other.group);
        }
    };

    double* mean(int g) { return &means_[static_cast<size_t>(g) * width_]; }

    void fill(int g) {
        const std::vector<int32_t>& rows = groups_[g];
        table_.mean(rows.data(), static_cast<int64_t>(rows.size()), mean(g), x_.data());
        excess_.fill(g, rows.data(), static_cast<int64_t>(rows.size()));
    }

    // All other groups, the nearest first.
    void order(int g) {
        near_.clear();
        for (int other = 0; other < static_cast<int>(groups_.size()); ++other)
            if (other != g && !groups_[other].empty()) near_.push_back({apart(mean(g), mean(other), width_), other});
        std::sort(near_.begin(), near_.end());
        work_ = static_cast<int64_t>(near_.size()) * width_;
    }

    // The first of the cheapest swaps of the first range that has one: by group, by the row given, by the row taken.
    bool swap(int g) {
        size_t begin = 0;
        for (const size_t limit : {kNearby[0], kNearby[1], near_.size()}) {
            const size_t end = std::min(limit, near_.size());
            best_ = std::numeric_limits<double>::infinity();
            for (; begin < end; ++begin) consider(g, near_[begin].group);
            if (best_ == std::numeric_limits<double>::infinity()) continue;
            const int32_t out = groups_[g][give_], in = groups_[other_][take_];
            std::swap(groups_[g][give_], groups_[other_][take_]);
            excess_.change(g, out, in);
            excess_.change(other_, in, out);
            for (const int changed : {g, other_})
                table_.mean(groups_[changed].data(), static_cast<int64_t>(groups_[changed].size()), mean(changed),
                            x_.data());
            return true;
        }
        return false;
    }

    void consider(int g, int other) {
        const std::vector<int32_t>&own = groups_[g], &theirs = groups_[other];
        const int64_t before = excess_.in(g) + excess_.in(other);
        const double both = 1.0 / own.size() + 1.0 / theirs.size();
        for (size_t i = 0; i < own.size(); ++i) {
            bool loaded = false;
            double away = 0;
            for (size_t r = 0; r < theirs.size(); ++r) {
                if (excess_.after(g, own[i], theirs[r]) + excess_.after(other, theirs[r], own[i]) >= before) continue;
                if (!loaded) {
                    table_.load(own[i], x_.data());
                    away = apart(x_.data(), mean(other), width_) - apart(x_.data(), mean(g), width_);
                    loaded = true;
                }
                table_.load(theirs[r], y_.data());
                const double between = apart(y_.data(), mean(g), width_) - apart(y_.data(), mean(other), width_);
                const double change = (away + between) - both * apart(x_.data(), y_.data(), width_);
                if (change < best_) best_ = change, other_ = other, give_ = i, take_ = r;
                work_ += 5 * width_;
            }
        }
        work_ += static_cast<int64_t>(own.size() * theirs.size());
    }

    void join(int g, int other) {
        groups_[g].insert(groups_[g].end(), groups_[other].begin(), groups_[other].end());
        groups_[other].clear();
        fill(g);
    }

    const Table& table_;
    const int width_;
    std::vector<std::vector<int32_t>>& groups_;
    Watch& watch_;
    Excess excess_;
    std::vector<double> means_, x_, y_;
    std::vector<Near> near_;
    double best_ = 0;
    int other_ = -1;
    size_t give_ = 0, take_ = 0;
    int64_t work_ = 0;
};

}  // namespace grouping
}  // namespace unpooled
