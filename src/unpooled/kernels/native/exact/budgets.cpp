// Column generation over budgets: start, rounds, and the bound that is claimed.
#include "budgets.hpp"

#include "branch.hpp"
#include "turn.hpp"

namespace unpooled {
namespace exact {

namespace {

// The rows in units in which squares are float64 numbers; then about a point near their mean, turned. False if there are
// none.
bool place(const BudgetTask& task, Units& units, std::vector<double>& given, Budgeted& rows) {
    const int n = task.n, d = task.d;
    double widest = 0;
    for (int l = 0; l < d; ++l) {
        double low = task.x[l], high = task.x[l];
        for (int i = 1; i < n; ++i) low = std::min(low, task.x[i * d + l]), high = std::max(high, task.x[i * d + l]);
        widest = std::max(widest, 0.5 * high - 0.5 * low);
    }
    if (!(widest > 0)) return false;
    units.rows = Units::power(widest);
    units.weights = Units::power(*std::max_element(task.w, task.w + n));
    std::vector<double> mean(d, 0.0);
    double mass = 0;
    for (int i = 0; i < n; ++i) mass += rows.w[i] = std::ldexp(task.w[i], -units.weights);
    for (int i = 0; i < n; ++i)
        for (int l = 0; l < d; ++l) {
            given.push_back(std::ldexp(task.x[i * d + l], -units.rows));
            mean[l] += rows.w[i] / mass * given.back();
        }
    for (int i = 0; i < n; ++i)
        for (int l = 0; l < d; ++l) {
            double& x = rows.x[static_cast<size_t>(i) * d + l];
            x = given[static_cast<size_t>(i) * d + l] - mean[l];
            if (!std::isfinite(x)) return false;
        }
    turn(rows);
    // a row differs from the true one, moved and turned, by at most (d + 2)^1.5 2^-53 of its length
    for (int i = 0; i < n; ++i) {
        double size = 0;
        for (int l = 0; l < d; ++l) size += rows.row(i)[l] * rows.row(i)[l];
        rows.doubt[i] = 0x1.0p-106 * (d + 2.0) * (d + 2.0) * (d + 2.0) * size;
    }
    return true;
}

}  // namespace

void bound_by_budgets(const BudgetTask& task, BudgetResult& result) {
    const int n = task.n, k = task.k;
    const Clock clock(task.seconds);
    Units units;
    Budgeted rows(n, task.d);
    std::vector<double> given;
    result = {0.0, 0, 0, 0, 0, false};
    if (k >= n || !place(task, units, given, rows)) return;

    double cost = 0;
    std::vector<std::vector<int>> members(k);
    std::vector<Column> start;
    for (int i = 0; i < n; ++i) members[task.labels[i]].push_back(i);
    for (auto& m : members)
        if (!m.empty()) start.push_back(rows.column(std::move(m)));
    for (const Column& c : start) cost += c.cost;
    if (!(cost > 1e-250) || !std::isfinite(cost)) return;
    Allowance allowance(task.rounds, task.boxes, task.work, clock);
    Generation root(rows, k, cost, allowance);
    for (const Column& c : start) root.pool.add(c);
    root.pool.fixed = root.pool.columns.size();
    for (const Column& c : start)  // a first guess: a row's own cost, and a part of the price of its cluster
        for (int i : c.rows) rows.budgets[i] = rows.w[i] * (rows.apart(i, c.mean.data()) + cost / k / c.mass);
    root.master.budgets = rows.budgets;
    root.master.price = cost / k;
    double top = 0;
    root.pool.climb(-kInf, 4 * n, top);
    root.run(task.goal, kInf);

    double lower = root.best;
    std::vector<int> alone(n), labels(task.labels, task.labels + n);
    for (int i = 0; i < n; ++i) alone[i] = i;
    Tree tree(rows, given, k, std::move(labels), cost, allowance);
    if (task.nodes > 0) {
        tree.meet(rows, root, alone);
        if (root.converged && lower < tree.cost * (1 - 10 * task.goal)) lower = tree.run(root, task.goal, task.nodes);
        std::copy(tree.labels.begin(), tree.labels.end(), task.labels);
    } else {
        std::vector<int32_t> own(n, 0);
        tree.round_off(rows, root, own);
        std::copy(own.begin(), own.end(), task.labels);
    }
    result.rounds = allowance.spent_rounds, result.boxes = allowance.spent_boxes, result.work = allowance.spent_work;
    result.nodes = tree.nodes, result.converged = root.converged;
    result.lower = std::max(0.0, units.down(lower));
}

}  // namespace exact
}  // namespace unpooled
