// Column generation: a linear programme over the clusters at hand and a search for better ones, in turn.
#pragma once
#include <set>

#include "ceiling.hpp"
#include "master.hpp"
#include "surplus.hpp"

namespace unpooled {
namespace exact {

// The clusters that the linear programme knows.
class Pool {
public:
    std::vector<Column> columns;
    size_t fixed = 0;  // the first ones stay: they cover all rows

    explicit Pool(const Budgeted& rows) : rows_(rows) {}

    bool add(Column c) {
        if (c.rows.empty() || !seen_.insert(c.rows).second) return false;
        columns.push_back(std::move(c));
        return true;
    }

    // Add clusters of a surplus above `least`, by climbing from every row and from the clusters at hand; how many were
    // added, and the largest surplus that was met.
    int climb(double least, int most, double& top) {
        std::vector<std::pair<double, Column>> found;
        std::set<std::vector<int>> fresh;
        top = 0;
        auto from = [&](const double* y) {
            Column c = rows_.climb(y);
            if (c.rows.empty()) return;
            const double s = rows_.surplus(c);
            top = std::max(top, s);
            if (s > least && !seen_.count(c.rows) && fresh.insert(c.rows).second) found.emplace_back(s, std::move(c));
        };
        for (int i = 0; i < rows_.n; ++i) from(rows_.row(i));
        for (const Column& c : columns)
            if (rows_.surplus(c) > least - 0.3 * std::fabs(least)) from(c.mean.data());
        std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        if (found.size() > static_cast<size_t>(most)) found.resize(most);
        for (auto& f : found) add(std::move(f.second));
        return static_cast<int>(found.size());
    }

    // Forget clusters that are far from being worth their price, where there are too many.
    void tidy(double price, size_t most) {
        if (columns.size() <= most) return;
        std::vector<std::pair<double, size_t>> order;
        for (size_t j = 0; j < columns.size(); ++j)
            order.emplace_back(j < fixed ? kInf : rows_.surplus(columns[j]) - price, j);
        std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        order.resize(most / 2);
        std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
        std::vector<Column> kept;
        for (const auto& o : order) kept.push_back(std::move(columns[o.second]));
        columns = std::move(kept);
        seen_.clear();
        for (const Column& c : columns) seen_.insert(c.rows);
    }

private:
    const Budgeted& rows_;
    std::set<std::vector<int>> seen_;
};

inline double sum_of(const std::vector<double>& values) {
    double sum = 0;
    for (double v : values) sum += v;
    return sum;
}

// What a search may spend and has spent, over all its linear programmes.
struct Allowance {
    int rounds, spent_rounds = 0;
    int64_t boxes, spent_boxes = 0;
    int64_t work, spent_work = 0;
    const Clock& clock;

    Allowance(int most, int64_t most_boxes, int64_t most_work, const Clock& limit)
        : rounds(most), boxes(most_boxes), work(most_work), clock(limit) {}
    bool left() const { return spent_rounds < rounds && spent_boxes < boxes && !clock.over(); }
};

// The rounds for some rows, which may have to stay apart.
class Generation {
public:
    Pool pool;
    Master master;
    double best = 0;         // no k clusters cost less
    bool converged = false;  // budgets cannot do better, up to the goal

    Generation(Budgeted& rows, int k, double cost, Allowance& allowance)
        : pool(rows),
          master(rows.n, k, cost / rows.n),
          rows_(rows),
          k_(k),
          cost_(cost),
          allowance_(allowance),
          before_(allowance.spent_work) {}

    // Until the bound is within `goal` of the best possible, or reaches `target`.
    void run(double goal, double target) {
        const int n = rows_.n;
        double tolerance = 1e-2, promised = -kInf, top = 0;
        std::vector<double> promising = rows_.budgets;
        const int64_t enough = allowance_.work / 10 * 7;  // the rest is for a last search, without which there is no bound
        while (allowance_.left() && spent() < enough) {
            ++allowance_.spent_rounds;
            pool.tidy(master.price, 12 * static_cast<size_t>(n));
            master.solve(pool.columns, tolerance);
            for (int i = 0; i < n; ++i) rows_.budgets[i] = std::max(0.0, master.budgets[i]);
            const int added = pool.climb(master.price + 1e-12 * cost_, n, top);
            const double dual = sum_of(rows_.budgets) - k_ * std::max(top, master.price);
            const double gap = (master.value - dual) / master.value;
            if (dual > promised) promised = dual, promising = rows_.budgets;
            const bool there = dual > target;
            if (!there && gap > std::max(goal, 3 * tolerance) && added > 0) {
                tolerance = std::max(std::min(tolerance, 0.1 * gap), 0.1 * goal);
                continue;
            }
            // climbing finds no more, or all that is needed: search everywhere
            double slack = std::max(0.3 * goal, 0.1 * tolerance) * master.value / k_;
            if (there) slack = std::max(0.3 * goal * master.value, 0.5 * (dual - target)) / k_;
            const int64_t left = allowance_.boxes - allowance_.spent_boxes;
            Ceiling found = search(top, slack, std::max<int64_t>(left / 4, 1000), (allowance_.work - spent()) / 4);
            int more = 0;
            for (Column& c : found.columns)
                if (rows_.surplus(c) > master.price) more += pool.add(std::move(c));
            converged = master.value - best <= goal * master.value;
            if (converged || best >= target || (tolerance <= 0.1 * goal && !more && !added)) break;
            tolerance = std::max(0.1 * goal, 0.1 * tolerance);
        }
        if (!converged && best < target && allowance_.spent_boxes < allowance_.boxes) {
            rows_.budgets = promising;
            search(0, 0.3 * goal * cost_ / k_, allowance_.boxes - allowance_.spent_boxes, allowance_.work - spent());
        }
        allowance_.spent_work = spent();
    }

private:
    Budgeted& rows_;
    const int k_;
    const double cost_;
    Allowance& allowance_;
    const int64_t before_;

    int64_t spent() const { return before_ + rows_.work + master.work; }

    Ceiling search(double known, double slack, int64_t boxes, int64_t work) {
        Ceiling ceiling(rows_, known, slack, boxes, rows_.work + std::max<int64_t>(work, 0), allowance_.clock);
        allowance_.spent_boxes += ceiling.boxes;
        const double sum = sum_of(rows_.budgets), paid = k_ * ceiling.upper;
        best = std::max(best, sum - paid - rounding(2.0 * rows_.n + 8) * (sum + paid));
        return ceiling;
    }
};

}  // namespace exact
}  // namespace unpooled
