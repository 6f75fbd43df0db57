// Column generation over budgets: start, rounds, and the bound that is claimed.
#include "budgets.hpp"

#include <set>

#include "master.hpp"
#include "surplus.hpp"
#include "turn.hpp"

namespace unpooled {
namespace exact {

namespace {

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

// The rows in units in which squares are float64 numbers, about a point near their mean, turned; false if there are none.
bool place(const BudgetTask& task, Units& units, Budgeted& rows) {
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
        for (int l = 0; l < d; ++l) mean[l] += rows.w[i] / mass * std::ldexp(task.x[i * d + l], -units.rows);
    for (int i = 0; i < n; ++i)
        for (int l = 0; l < d; ++l) {
            double& x = rows.x[static_cast<size_t>(i) * d + l];
            x = std::ldexp(task.x[i * d + l], -units.rows) - mean[l];
            if (!std::isfinite(x)) return false;
        }
    turn(rows);
    return true;
}

// Labels by the clusters of the largest shares, at most k.
void round_off(const Budgeted& rows, const Pool& pool, const std::vector<double>& shares, int k, int32_t* labels) {
    std::vector<size_t> order;
    for (size_t j = 0; j < std::min(shares.size(), pool.columns.size()); ++j) order.push_back(j);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return shares[a] > shares[b]; });
    order.resize(std::min<size_t>(order.size(), k));
    for (int i = 0; i < rows.n; ++i) {
        double near = kInf;
        for (size_t c = 0; c < order.size(); ++c) {
            const double away = rows.apart(i, pool.columns[order[c]].mean.data());
            if (away < near) near = away, labels[i] = static_cast<int32_t>(c);
        }
    }
}

double sum_of(const std::vector<double>& values) {
    double sum = 0;
    for (double v : values) sum += v;
    return sum;
}

}  // namespace

void bound_by_budgets(const BudgetTask& task, BudgetResult& result) {
    const int n = task.n, k = task.k;
    const Clock clock(task.seconds);
    Units units;
    Budgeted rows(n, task.d);
    result = {0.0, 0, 0, 0, false};
    if (k >= n || !place(task, units, rows)) return;

    Pool pool(rows);
    double cost = 0;
    std::vector<std::vector<int>> members(k);
    for (int i = 0; i < n; ++i) members[task.labels[i]].push_back(i);
    for (auto& m : members)
        if (!m.empty()) pool.add(rows.column(std::move(m)));
    for (const Column& c : pool.columns) cost += c.cost;
    if (!(cost > 1e-250) || !std::isfinite(cost)) return;
    pool.fixed = pool.columns.size();
    for (const Column& c : pool.columns)  // a first guess: a row's own cost, and a part of the price of its cluster
        for (int i : c.rows) rows.budgets[i] = rows.w[i] * (rows.apart(i, c.mean.data()) + cost / k / c.mass);
    Master master(n, k, cost / n);
    master.budgets = rows.budgets;
    master.price = cost / k;
    double top = 0;
    pool.climb(-kInf, 4 * n, top);

    double best = 0, tolerance = 1e-2, promised = -kInf;
    std::vector<double> promising = rows.budgets;
    auto spent = [&] { return rows.work + master.work; };
    auto search = [&](double known, double slack, int64_t boxes, int64_t work) {
        Ceiling ceiling(rows, known, slack, boxes, rows.work + std::max<int64_t>(work, 0), clock);
        result.boxes += ceiling.boxes;
        const double sum = sum_of(rows.budgets), paid = k * ceiling.upper;
        best = std::max(best, sum - paid - rounding(2.0 * n + 8) * (sum + paid));
        return ceiling;
    };
    const int64_t enough = task.work / 10 * 7;  // the rest is for a last search, without which there is no bound
    while (result.rounds < task.rounds && result.boxes < task.boxes && spent() < enough && !clock.over()) {
        ++result.rounds;
        pool.tidy(master.price, 12 * static_cast<size_t>(n));
        master.solve(pool.columns, tolerance);
        for (int i = 0; i < n; ++i) rows.budgets[i] = std::max(0.0, master.budgets[i]);
        const int added = pool.climb(master.price + 1e-12 * cost, n, top);
        const double dual = sum_of(rows.budgets) - k * std::max(top, master.price);
        const double gap = (master.value - dual) / master.value;
        if (dual > promised) promised = dual, promising = rows.budgets;
        if (gap > std::max(task.goal, 3 * tolerance) && added > 0) {
            tolerance = std::max(std::min(tolerance, 0.1 * gap), 0.1 * task.goal);
            continue;
        }
        // climbing finds no more: search everywhere
        const double slack = std::max(0.3 * task.goal, 0.1 * tolerance) * master.value / k;
        const int64_t left = task.boxes - result.boxes;
        Ceiling found = search(top, slack, std::max<int64_t>(left / 4, 1000), (task.work - spent()) / 4);
        int more = 0;
        for (Column& c : found.columns)
            if (rows.surplus(c) > master.price) more += pool.add(std::move(c));
        result.converged = master.value - best <= task.goal * master.value;
        if (result.converged || (tolerance <= 0.1 * task.goal && !more && !added)) break;
        tolerance = std::max(0.1 * task.goal, 0.1 * tolerance);
    }
    if (!result.converged && result.boxes < task.boxes) {
        rows.budgets = promising;
        search(0, 0.3 * task.goal * cost / k, task.boxes - result.boxes, task.work - spent());
    }
    result.work = spent();
    round_off(rows, pool, master.shares, k, task.labels);
    result.lower = std::max(0.0, units.down(best));
}

}  // namespace exact
}  // namespace unpooled
