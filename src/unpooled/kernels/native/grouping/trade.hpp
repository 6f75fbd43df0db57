// The rows of a group, one by one: each makes the best move to a group beside it, or the best swap with a row of one, if
// that lowers the squared error. With classes a step must leave no excess.
#pragma once
#include <algorithm>
#include <vector>

#include "classes.hpp"
#include "groups.hpp"
#include "loops.hpp"

namespace unpooled {
namespace grouping {

class Trade {
public:
    Trade(const Table& table, Groups& groups, Excess* excess = nullptr)
        : table_(table), groups_(groups), excess_(excess), width_(table.width), most_(groups.most), own_(room_for(1)),
          others_(room_for(kNearest)), to_own_(most_), from_others_(kNearest * most_), to_others_(kNearest * most_),
          at_others_(kNearest * most_) {}

    // By how much the squared error falls. `beside` are at most kNearest groups.
    double run(int group, const int* beside, int count, double worth) {
        start(group, beside, count);
        double gained = 0;
        for (int i = 0; i < groups_.size(group_);) {
            const Step step = best_step(i, worth);
            if (step.beside < 0) {
                ++i;
                continue;
            }
            gained -= step.change;
            if (step.row < 0) {
                move(i, step.beside);  // and the last row is now number i
            } else {
                swap(i, step.beside, step.row);
                ++i;
            }
            refresh(step.beside);
        }
        return gained;
    }

    // Multiply-adds of the last run, roughly.
    int64_t work() const { return work_; }

private:
    struct Step {
        double change;
        int beside, row;  // beside -1: none; row -1: a move
    };

    size_t room_for(int groups) const { return static_cast<size_t>(groups) * most_ * width_; }
    double* own(int i) { return &own_[static_cast<size_t>(i) * width_]; }
    double* other(int q, int i) { return &others_[(static_cast<size_t>(q) * most_ + i) * width_]; }

    void start(int group, const int* beside, int count) {
        group_ = group, beside_ = beside, count_ = count, work_ = 0;
        for (int q = 0; q < count; ++q)
            for (int i = 0; i < groups_.size(beside[q]); ++i) table_.fetch(groups_.members(beside[q])[i]);
        for (int i = 0; i < groups_.size(group); ++i) table_.load(groups_.members(group)[i], own(i));
        for (int q = 0; q < count; ++q)
            for (int i = 0; i < groups_.size(beside[q]); ++i) table_.load(groups_.members(beside[q])[i], other(q, i));
        distances_to_group();
        for (int q = 0; q < count; ++q) distances_to(q);
    }

    void distances_to_group() {
        const double* mean = groups_.mean(group_);
        distances(own(0), groups_.size(group_), width_, mean, to_own_.data());
        for (int q = 0; q < count_; ++q)
            distances(other(q, 0), groups_.size(beside_[q]), width_, mean, &from_others_[q * most_]);
    }

    void distances_to(int q) {
        const double* mean = groups_.mean(beside_[q]);
        distances(own(0), groups_.size(group_), width_, mean, &to_others_[q * most_]);
        distances(other(q, 0), groups_.size(beside_[q]), width_, mean, &at_others_[q * most_]);
    }

    // The first of the best, in the order of groups: the move, then the swaps.
    Step best_step(int i, double worth) {
        Step best{-worth, -1, -1};
        const int size = groups_.size(group_);
        const double here = to_own_[i];
        for (int q = 0; q < count_; ++q) {
            const int theirs = groups_.size(beside_[q]);
            const double there = to_others_[q * most_ + i];
            if (size > groups_.least && theirs < most_) {
                const double change = theirs * there / (theirs + 1) - size * here / (size - 1);
                if (change < best.change && allowed(i, q, -1)) best = {change, q, -1};
            }
            const Swaps swaps{own(i), here, there, other(q, 0), &from_others_[q * most_],
                              &at_others_[q * most_], theirs, width_, 1.0 / size + 1.0 / theirs};
            const int row = excess_ ? best_allowed_swap(swaps, i, q, best.change) : best_swap(swaps, best.change);
            if (row >= 0) best.beside = q, best.row = row;
            work_ += theirs * 4;
        }
        return best;
    }

    // As best_swap, among the swaps that leave no excess.
    int best_allowed_swap(const Swaps& s, int i, int q, double& change) const {
        int best = -1;
        const double away = s.there - s.here;
        for (int r = 0; r < s.count; ++r) {
            const double found = (away + (s.from[r] - s.at[r])) -
                                 s.both * apart(s.row, s.rows + static_cast<size_t>(r) * s.width, s.width);
            if (found < change && allowed(i, q, r)) change = found, best = r;
        }
        return best;
    }

    // Does the step of row i to group q, in exchange for its row r (-1: a move), leave no excess?
    bool allowed(int i, int q, int r) const {
        if (!excess_) return true;
        const int64_t row = groups_.members(group_)[i], back = r < 0 ? -1 : groups_.members(beside_[q])[r];
        return excess_->after(group_, row, back) == 0 && excess_->after(beside_[q], back, row) == 0;
    }

    void count_step(int64_t row, int q, int64_t back) {
        if (!excess_) return;
        excess_->change(group_, row, back);
        excess_->change(beside_[q], back, row);
    }

    void move(int i, int q) {
        count_step(groups_.members(group_)[i], q, -1);
        const int b = beside_[q], last = groups_.size(group_) - 1, end = groups_.size(b);
        groups_.members(b)[end] = groups_.members(group_)[i];
        groups_.members(group_)[i] = groups_.members(group_)[last];
        std::copy_n(own(i), width_, other(q, end));
        if (i != last) std::copy_n(own(last), width_, own(i));
        for (int p = 0; p < count_; ++p) to_others_[p * most_ + i] = to_others_[p * most_ + last];
        groups_.resize(group_, last);
        groups_.resize(b, end + 1);
    }

    void swap(int i, int q, int r) {
        const int b = beside_[q];
        count_step(groups_.members(group_)[i], q, groups_.members(b)[r]);
        std::swap(groups_.members(group_)[i], groups_.members(b)[r]);
        std::swap_ranges(own(i), own(i) + width_, other(q, r));
        groups_.resize(group_, groups_.size(group_));
        groups_.resize(b, groups_.size(b));
    }

    // Means and distances after a step between the group and number q beside it.
    void refresh(int q) {
        mean_of(own(0), groups_.size(group_), groups_.mean(group_));
        mean_of(other(q, 0), groups_.size(beside_[q]), groups_.mean(beside_[q]));
        distances_to_group();
        distances_to(q);
        work_ += static_cast<int64_t>(groups_.size(group_)) * (count_ + 4) * width_;
    }

    void mean_of(const double* rows, int count, double* mean) const {
        std::fill_n(mean, width_, 0.0);
        for (int i = 0; i < count; ++i) add(mean, rows + static_cast<size_t>(i) * width_, width_);
        divide(mean, count, width_);
    }

    const Table& table_;
    Groups& groups_;
    Excess* excess_;  // null: no classes
    const int width_, most_;
    int group_ = 0, count_ = 0;
    const int* beside_ = nullptr;
    int64_t work_ = 0;
    std::vector<double> own_, others_;        // rows of the group; of the groups beside it
    std::vector<double> to_own_;              // squared distances of the group's rows from its mean,
    std::vector<double> from_others_;         // of the others' rows from it,
    std::vector<double> to_others_;           // of the group's rows from the others' means,
    std::vector<double> at_others_;           // of the others' rows from their own
};

}  // namespace grouping
}  // namespace unpooled
