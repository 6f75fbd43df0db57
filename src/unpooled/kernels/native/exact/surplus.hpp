// Rows with budgets, and the surplus of a cluster: what its rows' budgets leave after its cost.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace unpooled {
namespace exact {

struct Column {  // a cluster
    std::vector<int> rows;
    std::vector<double> mean;
    double mass = 0, cost = 0;
};

class Budgeted {
public:
    const int n, d;
    std::vector<double> x, w;      // (n, d) rows about a point near their mean; (n,)
    std::vector<double> budgets;   // (n,)
    std::vector<double> doubt;     // (n,) a bound on the squared error of a row of x
    std::vector<std::vector<int>> foes;  // (n,) rows that are in no cluster with it; empty if there are none at all
    mutable int64_t work = 0;      // steps of arithmetic so far, counted roughly and the same way every time

    Budgeted(int rows, int columns)
        : n(rows), d(columns), x(static_cast<size_t>(rows) * columns), w(rows), budgets(rows), doubt(rows) {}

    const double* row(int i) const { return &x[static_cast<size_t>(i) * d]; }
    double apart(int i, const double* y) const {
        double sum = 0;
        for (int l = 0; l < d; ++l) sum += (row(i)[l] - y[l]) * (row(i)[l] - y[l]);
        return sum;
    }
    // Are there no foes among these rows?
    bool at_peace(const std::vector<int>& members) const {
        if (foes.empty()) return true;
        for (int i : members)
            for (int j : foes[i])
                if (std::binary_search(members.begin(), members.end(), j)) return false;
        return true;
    }
    double surplus(const Column& c) const {
        double sum = -c.cost;
        for (int i : c.rows) sum += budgets[i];
        return sum;
    }
    Column column(std::vector<int> members) const {
        Column c;
        c.rows = std::move(members);
        c.mean.assign(d, 0.0);
        for (int i : c.rows) {
            c.mass += w[i];
            for (int l = 0; l < d; ++l) c.mean[l] += w[i] * row(i)[l];
        }
        for (double& m : c.mean) m /= c.mass;
        for (int i : c.rows) c.cost += w[i] * apart(i, c.mean.data());
        return c;
    }

    // The rows that pay for themselves about y, then about their own mean, and so on; then single rows that pay for the
    // change they make. The surplus never falls.
    Column climb(const double* start) const {
        std::vector<double> y(start, start + d);
        std::vector<char> in(n, 0), next(n);
        double mass = 0;
        for (int step = 0; step < 60; ++step) {
            std::vector<double> sums(d, 0.0);
            work += 3LL * n * (d + 1);
            mass = 0;
            for (int i = 0; i < n; ++i) {
                next[i] = budgets[i] > w[i] * apart(i, y.data());
                if (next[i] && !foes.empty()) settle_with_foes(i, y.data(), next);
            }
            for (int i = 0; i < n; ++i) {
                if (!next[i]) continue;
                mass += w[i];
                for (int l = 0; l < d; ++l) sums[l] += w[i] * row(i)[l];
            }
            if (mass <= 0) break;
            const bool same = next == in;
            in = next;
            for (int l = 0; l < d; ++l) y[l] = sums[l] / mass;
            if (same) break;
        }
        if (mass <= 0) return {};
        for (int sweep = 0; sweep < 20; ++sweep) {
            bool moved = false;
            work += 3LL * n * (d + 1);
            for (int i = 0; i < n; ++i) {
                const double away = w[i] * apart(i, y.data());
                if (!in[i] && budgets[i] > away * mass / (mass + w[i]) && !met(i, in)) {
                    mass += w[i];
                    for (int l = 0; l < d; ++l) y[l] += (row(i)[l] - y[l]) * (w[i] / mass);
                    in[i] = moved = true;
                } else if (in[i] && mass > w[i] * 1.000001 && budgets[i] < away * mass / (mass - w[i])) {
                    mass -= w[i];
                    for (int l = 0; l < d; ++l) y[l] -= (row(i)[l] - y[l]) * (w[i] / mass);
                    in[i] = 0, moved = true;
                }
            }
            if (!moved) break;
        }
        std::vector<int> members;
        for (int i = 0; i < n; ++i)
            if (in[i]) members.push_back(i);
        if (members.empty()) return {};
        return column(std::move(members));
    }

private:
    // Is a foe of row i among those that are in?
    bool met(int i, const std::vector<char>& in) const {
        if (foes.empty()) return false;
        for (int j : foes[i])
            if (in[j]) return true;
        return false;
    }

    // Of a row and its foes before it, those stay that have more left about y: the row, or all of its foes.
    void settle_with_foes(int i, const double* y, std::vector<char>& in) const {
        const double own = budgets[i] - w[i] * apart(i, y);
        for (int j : foes[i])
            if (j < i && in[j] && budgets[j] - w[j] * apart(j, y) >= own) {
                in[i] = 0;
                return;
            }
        for (int j : foes[i])
            if (j < i) in[j] = 0;
    }
};

}  // namespace exact
}  // namespace unpooled
