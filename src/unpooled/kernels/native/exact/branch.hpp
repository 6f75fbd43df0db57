// Where budgets leave a gap: two rows are in one cluster, or they are not, and each of the cases has budgets of its own.
//
// Rows that are in one cluster are one row: their mean with their weight, and the cost within them is paid in any case.
// Rows that are not become foes: no cluster that is looked at has both.
#pragma once
#include <memory>

#include "generate.hpp"

namespace unpooled {
namespace exact {

class Tree {
public:
    std::vector<int> labels;  // (n,) the best clustering that was met
    double cost;              // its cost
    int nodes = 0;            // that were bounded

    // `given` (n, d) are the rows of `rows` before they were moved and turned.
    Tree(const Budgeted& rows, const std::vector<double>& given, int k, std::vector<int> start, double its_cost,
         Allowance& allowance)
        : labels(std::move(start)), cost(its_cost), rows_(rows), given_(given), k_(k), allowance_(allowance) {}

    // The clustering that the linear programme comes close to, if it is better than the best.
    void meet(const Budgeted& rows, const Generation& found, const std::vector<int>& group) {
        std::vector<int> own(rows.n, 0), all(rows_.n);
        round_off(rows, found, own);
        for (int i = 0; i < rows_.n; ++i) all[i] = own[group[i]];
        const double value = cost_of(all);
        if (value < cost) cost = value, labels = std::move(all);
    }

    // Labels by the clusters of the largest shares, at most k.
    template <class Label>
    void round_off(const Budgeted& rows, const Generation& found, std::vector<Label>& out) const {
        const std::vector<double>& shares = found.master.shares;
        const std::vector<Column>& columns = found.pool.columns;
        std::vector<size_t> order;
        for (size_t j = 0; j < std::min(shares.size(), columns.size()); ++j) order.push_back(j);
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return shares[a] > shares[b]; });
        order.resize(std::min<size_t>(order.size(), k_));
        for (int i = 0; i < rows.n; ++i) {
            double near = kInf;
            for (size_t c = 0; c < order.size(); ++c) {
                const double away = rows.apart(i, columns[order[c]].mean.data());
                if (away < near) near = away, out[i] = static_cast<Label>(c);
            }
        }
    }

    // Divide until the lowest bound of the cases is within `goal` of the best cost, or `most` cases were bounded; the bound.
    double run(const Generation& root, double goal, int most) {
        const double close = 10 * goal;
        std::vector<int> alone(rows_.n);
        for (int i = 0; i < rows_.n; ++i) alone[i] = i;
        divide(root, rows_, Node{root.best, 0, alone, {}, -1, -1, false, nullptr});
        double closed = open_.empty() ? root.best : kInf;
        while (!open_.empty() && nodes < most && allowance_.spent_work < allowance_.work / 2 && !allowance_.clock.over()) {
            auto next = std::min_element(open_.begin(), open_.end(), [](const Node& a, const Node& b) {
                return a.bound != b.bound ? a.bound < b.bound : a.number < b.number;
            });
            Node node = std::move(*next);
            open_.erase(next);
            if (node.bound >= cost * (1 - close)) {
                closed = std::min(closed, node.bound);
                break;  // and so are all others
            }
            closed = std::min(closed, bound(node, goal, close));
        }
        for (const Node& node : open_) closed = std::min(closed, node.bound);
        return std::max(root.best, closed);
    }

private:
    struct Known {
        std::vector<std::vector<int>> columns;  // by rows as they were given
        std::vector<double> budgets;            // (n,) of these rows
        double price;
    };
    struct Node {
        double bound;
        int number;
        std::vector<int> group;                   // (n,) of the rows: those of one group are one row
        std::vector<std::pair<int, int>> foes;    // rows of groups that are in no cluster together
        int first, second;                        // the rows that the node decides about
        bool together;
        std::shared_ptr<const Known> known;       // from the node above
    };

    const Budgeted& rows_;
    const std::vector<double>& given_;
    const int k_;
    Allowance& allowance_;
    std::vector<Node> open_;
    int numbers_ = 0;

    double cost_of(const std::vector<int>& all) const {
        std::vector<std::vector<int>> members(k_);
        for (int i = 0; i < rows_.n; ++i) members[all[i]].push_back(i);
        double sum = 0;
        for (auto& m : members)
            if (!m.empty()) sum += rows_.column(std::move(m)).cost;
        return sum;
    }

    // What the rows of a group cost about their mean, at least.
    double within(const std::vector<int>& members, double mass) const {
        const int d = rows_.d;
        double sum = 0;
        for (size_t a = 0; a < members.size(); ++a)
            for (size_t b = 0; b < a; ++b) {
                double away = 0;
                const double *one = &given_[static_cast<size_t>(members[a]) * d], *two = &given_[static_cast<size_t>(members[b]) * d];
                for (int l = 0; l < d; ++l) away += (one[l] - two[l]) * (one[l] - two[l]);
                sum += rows_.w[members[a]] * (rows_.w[members[b]] / mass) * away;
            }
        const double terms = 0.5 * members.size() * members.size();
        return std::max(0.0, sum * (1 - rounding(terms + members.size() + d + 16)) - kTiny);
    }

    // Bound a node, and divide it where that leaves a gap; a bound for what is not divided.
    double bound(const Node& node, double goal, double close) {
        ++nodes;
        std::vector<int> group = node.group;
        std::vector<std::pair<int, int>> foes = node.foes;
        if (node.together) {
            const int from = group[node.second], to = group[node.first];
            for (int& g : group)
                if (g == from) g = to;
            std::vector<int> number(rows_.n, -1);
            int count = 0;
            for (int& g : group) {
                if (number[g] < 0) number[g] = count++;
                g = number[g];
            }
        } else {
            foes.emplace_back(node.first, node.second);
        }
        const int m = *std::max_element(group.begin(), group.end()) + 1;
        for (const auto& f : foes)
            if (group[f.first] == group[f.second]) return kInf;  // no clustering is of this kind
        Budgeted rows(m, rows_.d);
        const double inside = join(group, foes, rows);
        Generation found(rows, k_, cost, allowance_);
        begin(node, group, rows, found);
        const double gap = std::max(0.0, cost - node.bound) / cost;
        double lower = node.bound;
        for (const double to : {std::max(goal, 0.02 * gap), goal}) {  // roughly at first
            allowance_.rounds = allowance_.spent_rounds + 80;
            found.run(to, cost * (1 - 0.5 * close) - inside);
            lower = std::max(lower, found.best + inside - rounding(4) * (found.best + inside));
            meet(rows, found, group);
            if (lower >= cost * (1 - close)) return lower;
            const size_t before = open_.size();
            divide(found, rows, Node{lower, 0, group, foes, -1, -1, false, nullptr});
            if (open_.size() > before) return kInf;
        }
        return lower;
    }

    // The rows of groups; what they cost within, at least.
    double join(const std::vector<int>& group, const std::vector<std::pair<int, int>>& foes, Budgeted& rows) const {
        const int d = rows_.d;
        std::vector<std::vector<int>> members(rows.n);
        for (int i = 0; i < rows_.n; ++i) members[group[i]].push_back(i);
        double inside = 0;
        for (int g = 0; g < rows.n; ++g) {
            const Column c = rows_.column(members[g]);
            rows.w[g] = c.mass;
            std::copy(c.mean.begin(), c.mean.end(), &rows.x[static_cast<size_t>(g) * d]);
            for (int i : members[g]) rows.doubt[g] = std::max(rows.doubt[g], rows_.doubt[i]);
            if (members[g].size() == 1) {
                std::copy(rows_.row(members[g][0]), rows_.row(members[g][0]) + d, &rows.x[static_cast<size_t>(g) * d]);
                continue;
            }
            // the mean is rounded once more: its error is at most 1 + (m + 4) (d + 2)^-1.5 times that of a row
            const double more = 1 + (members[g].size() + 4.0) / ((d + 2.0) * std::sqrt(d + 2.0)) * 1.001;
            rows.doubt[g] *= more * more * 1.001;
            inside += within(members[g], c.mass);
        }
        if (!foes.empty()) {
            rows.foes.resize(rows.n);
            for (const auto& f : foes) {
                rows.foes[group[f.first]].push_back(group[f.second]);
                rows.foes[group[f.second]].push_back(group[f.first]);
            }
            for (auto& each : rows.foes) {
                std::sort(each.begin(), each.end());
                each.erase(std::unique(each.begin(), each.end()), each.end());
            }
        }
        return inside * (1 - rounding(rows.n + 4.0));
    }

    // Budgets and clusters of the node above, as far as they suit the groups.
    void begin(const Node& node, const std::vector<int>& group, Budgeted& rows, Generation& found) {
        std::vector<int> size(rows.n, 0), all(rows.n);
        for (int g : group) ++size[g];
        for (int i = 0; i < rows_.n; ++i) rows.budgets[group[i]] += node.known->budgets[i];
        for (int g = 0; g < rows.n; ++g) all[g] = g;
        found.master.budgets = rows.budgets;
        found.master.price = node.known->price;
        Column dear = rows.column(all);  // no cluster, but it covers all rows: the programme has a solution
        dear.cost = 3 * cost;
        found.pool.add(std::move(dear));
        found.pool.fixed = 1;
        for (const std::vector<int>& column : node.known->columns) {
            std::vector<int> count(rows.n, 0), members;
            for (int i : column) ++count[group[i]];
            bool whole = true;
            for (int g = 0; g < rows.n && whole; ++g) {
                whole = count[g] == 0 || count[g] == size[g];
                if (count[g]) members.push_back(g);
            }
            if (whole && rows.at_peace(members)) found.pool.add(rows.column(std::move(members)));
        }
        double top = 0;
        found.pool.climb(-kInf, rows.n, top);
    }

    // Two nodes for the pair of rows that the shares of clusters say least about; none if they say all.
    void divide(const Generation& found, const Budgeted& rows, Node parent) {
        const std::vector<double>& shares = found.master.shares;
        const std::vector<Column>& columns = found.pool.columns;
        std::vector<double> both(static_cast<size_t>(rows.n) * rows.n, 0.0);
        for (size_t j = 0; j < std::min(shares.size(), columns.size()); ++j) {
            if (shares[j] < 1e-7) continue;
            const std::vector<int>& in = columns[j].rows;
            for (size_t a = 0; a < in.size(); ++a)
                for (size_t b = 0; b < a; ++b) both[static_cast<size_t>(in[a]) * rows.n + in[b]] += shares[j];
        }
        int first = -1, second = -1;
        double most = 1e-4;
        for (int a = 0; a < rows.n; ++a)
            for (int b = 0; b < a; ++b) {
                const double share = both[static_cast<size_t>(a) * rows.n + b], doubt = std::min(share, 1 - share);
                if (doubt > most) most = doubt, first = a, second = b;
            }
        if (first < 0) return;
        std::vector<std::vector<int>> members(rows.n);
        for (int i = 0; i < rows_.n; ++i) members[parent.group[i]].push_back(i);
        auto known = std::make_shared<Known>();
        known->price = found.master.price;
        known->budgets.resize(rows_.n);
        for (int i = 0; i < rows_.n; ++i) {
            const int g = parent.group[i];
            known->budgets[i] = found.master.budgets[g] / members[g].size();
        }
        for (size_t j = found.pool.fixed; j < columns.size(); ++j) {
            if (rows.surplus(columns[j]) < found.master.price - 0.3 * std::fabs(found.master.price)) continue;
            std::vector<int> original;
            for (int g : columns[j].rows) original.insert(original.end(), members[g].begin(), members[g].end());
            std::sort(original.begin(), original.end());
            known->columns.push_back(std::move(original));
        }
        parent.known = known;
        parent.first = members[first][0], parent.second = members[second][0];
        for (bool together : {true, false}) {
            parent.together = together;
            parent.number = ++numbers_;
            open_.push_back(parent);
        }
    }
};

}  // namespace exact
}  // namespace unpooled
