// The groups while they are made: members, means, and when each changed last. A slot without members is free.
#pragma once
#include <vector>

#include "rows.hpp"

namespace unpooled {
namespace grouping {

constexpr int kNearest = 12; // groups beside a group that are looked at

class Groups {
public:
    const int least, most, width;

    Groups(const Table& table, int least)
        : least(least), most(2 * least - 1), width(table.width), table_(table), room_(table.width) {
        const size_t slots = static_cast<size_t>(table.n / least + 1);
        members_.reserve(slots * most);
        means_.reserve(slots * width);
        sizes_.reserve(slots);
        changed_.reserve(slots);
    }

    int slots() const { return static_cast<int>(sizes_.size()); }
    int alive() const { return slots() - static_cast<int>(free_.size()); }
    int size(int g) const { return sizes_[g]; }
    int32_t* members(int g) { return &members_[static_cast<size_t>(g) * most]; }
    const int32_t* members(int g) const { return &members_[static_cast<size_t>(g) * most]; }
    double* mean(int g) { return &means_[static_cast<size_t>(g) * width]; }
    const double* mean(int g) const { return &means_[static_cast<size_t>(g) * width]; }
    int64_t changed(int g) const { return changed_[g]; }
    int64_t now() const { return now_; }

    // A slot for a new group: the one that became free last, else another.
    int open() {
        if (!free_.empty()) {
            const int g = free_.back();
            free_.pop_back();
            return g;
        }
        members_.resize(members_.size() + most);
        means_.resize(means_.size() + width);
        sizes_.push_back(0);
        changed_.push_back(0);
        return slots() - 1;
    }

    void close(int g) {
        sizes_[g] = 0;
        free_.push_back(g);
        changed_[g] = ++now_;
    }

    void fill(int g, const int32_t* rows, int count) {
        std::memcpy(members(g), rows, sizeof(int32_t) * count);
        table_.mean(rows, count, mean(g), room_.data());
        resize(g, count);
    }

    // The caller changed members and mean.
    void resize(int g, int count) {
        sizes_[g] = count;
        changed_[g] = ++now_;
    }

    double squared_error() {
        double sum = 0;
        for (int g = 0; g < slots(); ++g)
            for (int i = 0; i < size(g); ++i) {
                table_.load(members(g)[i], room_.data());
                sum += apart(room_.data(), mean(g), width);
            }
        return sum;
    }

private:
    const Table& table_;
    std::vector<double> room_, means_;
    std::vector<int32_t> members_, sizes_, free_;
    std::vector<int64_t> changed_;
    int64_t now_ = 0;
};

}  // namespace grouping
}  // namespace unpooled
