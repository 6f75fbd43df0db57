// The course of a grouping: cut, then improve for some rounds, then number the groups. One column is solved exactly. With
// classes the groups are then repaired, and improved again by steps that leave no excess.
#include "group.hpp"

#include <vector>

#include "cut.hpp"
#include "nearest.hpp"
#include "repair.hpp"
#include "resplit.hpp"
#include "trade.hpp"

namespace unpooled {
namespace grouping {

namespace {

constexpr int kRounds = 10;
constexpr double kEnough = 1e-3;   // a round that lowers the squared error by a smaller share is the last
constexpr double kWorth = 1e-9;    // of a row's mean squared error: what a single step must gain
constexpr double kPlainShare = 0.5, kRepairedShare = 0.7;  // of the time with classes: until groups, until no excess

// One column: the best groups are consecutive.
void group_column(const Table& table, int least, int64_t* labels) {
    std::vector<Along> along(table.n);
    double row[4], sum = 0;
    for (int64_t i = 0; i < table.n; ++i) {
        table.load(i, row);
        along[i] = {row[0], static_cast<int32_t>(i)};
        sum += row[0];
    }
    const double mean = sum / table.n;
    sort_along(along.data(), table.n);
    std::vector<double> sums(4 * (table.n + 1), 0.0);
    for (int64_t i = 0; i < table.n; ++i) sums[4 * (i + 1)] = sums[4 * i] + (along[i].at - mean);
    Parts parts;
    parts.find(sums.data(), table.n, 4, least);
    int64_t at = 0, label = 0;
    for (auto end = parts.ends().rbegin(); end != parts.ends().rend(); ++end, ++label)
        for (; at < *end; ++at) labels[along[at].row] = label;
}

// Rounds over all groups whose neighbourhood changed.
class Improvement {
public:
    Improvement(const Table& table, Groups& groups, Watch& watch, Excess* excess = nullptr)
        : groups_(groups), watch_(watch), nearest_(groups), resplit_(table, groups), trade_(table, groups, excess),
          resplits_(!excess) {
        left_ = groups.squared_error();
        worth_ = kWorth * left_ / table.n;
    }

    void run() {
        for (int round = 0; round < kRounds; ++round) {
            nearest_.prepare();
            const int slots = groups_.slots();
            seen_.resize(slots, -1);
            beside_.resize(static_cast<size_t>(slots) * kNearest, -1);
            double gained = 0, todo = 1;
            for (int r = 0; r < round; ++r) todo /= 2;
            for (int g = 0; g < slots; ++g) {
                gained += visit(g);
                watch_.after(work_, 1 - (1 - kCutShare) * todo * (1 - 0.5 * g / slots));
            }
            left_ -= gained;
            if (!(gained > kEnough * (left_ + gained))) return;
        }
    }

private:
    // By how much the squared error falls.
    double visit(int g) {
        work_ = 0;
        const int64_t before = seen_[g];
        if (!groups_.size(g) || !stale(g)) return 0;
        seen_[g] = groups_.now();
        const Best& best = nearest_.of(g);
        int32_t* beside = &beside_[static_cast<size_t>(g) * kNearest];
        std::fill_n(beside, kNearest, -1);
        std::copy_n(best.ids(), best.count(), beside);
        double gained = 0;
        for (int count = 2; resplits_ && count <= 3 && count <= best.count() + 1; ++count) {
            const int which[3] = {g, beside[0], beside[1]};
            bool alive = true, changed = false;
            for (int q = 0; q < count; ++q) {
                alive = alive && groups_.size(which[q]);
                changed = changed || groups_.changed(which[q]) > before;
            }
            if (alive && changed) gained += resplit_.attempt(which, count, worth_);
        }
        const bool all = groups_.changed(g) > before;
        int with[kNearest], count = 0;
        for (int q = 0; q < best.count(); ++q)
            if (groups_.size(beside[q]) && (all || groups_.changed(beside[q]) > before)) with[count++] = beside[q];
        if (count) gained += trade_.run(g, with, count, worth_);
        work_ = trade_.work() + 100 * groups_.least * groups_.width;
        return gained;
    }

    // Did the group or one beside it change since it was visited?
    bool stale(int g) const {
        if (groups_.changed(g) > seen_[g]) return true;
        for (int q = 0; q < kNearest; ++q) {
            const int other = beside_[static_cast<size_t>(g) * kNearest + q];
            if (other >= 0 && groups_.changed(other) > seen_[g]) return true;
        }
        return false;
    }

    Groups& groups_;
    Watch& watch_;
    Nearest nearest_;
    Resplit resplit_;
    Trade trade_;
    const bool resplits_;
    std::vector<int64_t> seen_;     // when each group was visited
    std::vector<int32_t> beside_;   // (slots, kNearest) the groups beside it then
    double left_, worth_;
    int64_t work_ = 0;
};

void number(const int32_t* rows, int64_t count, int64_t label, int64_t* labels) {
    for (int64_t i = 0; i < count; ++i) labels[rows[i]] = label;
}

// Groups without excess, from any groups. Groups that are too large since they were joined stay as they are.
void limit(const Task& task, const Table& table, Watch& watch, int64_t* labels) {
    std::vector<std::vector<int32_t>> parts(*std::max_element(labels, labels + task.n) + 1);
    for (int64_t i = 0; i < task.n; ++i) parts[labels[i]].push_back(static_cast<int32_t>(i));
    watch.part(kPlainShare, kRepairedShare);
    Repair(table, task.classes, parts, watch).run();
    Groups groups(table, task.least);
    Excess excess(task.classes);
    int64_t label = 0;
    for (const std::vector<int32_t>& rows : parts) {
        const int count = static_cast<int>(rows.size());
        if (count > groups.most) {
            number(rows.data(), count, label++, labels);
        } else if (count) {
            const int g = groups.open();
            groups.fill(g, rows.data(), count);
            excess.resize(g + 1);
            excess.fill(g, rows.data(), count);
        }
    }
    if (!groups.slots()) return;
    watch.part(kRepairedShare, 1);
    Improvement(table, groups, watch, &excess).run();
    for (int g = 0; g < groups.slots(); ++g) number(groups.members(g), groups.size(g), label++, labels);
}

}  // namespace

void group(const Task& task, int64_t* labels) {
    const Table table{task.single, task.full, task.n, task.columns, (task.columns + 3) / 4 * 4};
    Watch watch(task.tell);
    const bool limited = task.classes.columns > 0;
    watch.part(0, limited ? kPlainShare : 1);
    if (table.columns == 1) {
        group_column(table, task.least, labels);
    } else {
        Groups groups(table, task.least);
        Cutter(table, task.least, watch).run(groups);
        Improvement(table, groups, watch).run();
        int64_t label = 0;
        for (int g = 0; g < groups.slots(); ++g)
            if (groups.size(g)) number(groups.members(g), groups.size(g), label++, labels);
    }
    if (limited) limit(task, table, watch, labels);
}

}  // namespace grouping
}  // namespace unpooled
