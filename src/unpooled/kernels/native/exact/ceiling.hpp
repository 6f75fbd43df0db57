// The largest surplus of a cluster, bounded from above.
//
// The surplus of rows C about a point y is sum over C of (b_i - w_i |x_i - y|^2); the best C for y are the rows with a
// positive term. So the largest surplus is the maximum over y of F(y) = sum_i max(0, b_i - w_i |x_i - y|^2), a search in
// as many dimensions as there are columns. It is bounded over boxes of y: where a term may change its sign it lies below
// the chord between its lowest and highest value, again a concave parabola in y, and a sum of such parabolas has its
// maximum over a box in closed form. The error of the chords falls with the square of the box. Rows that must not be in
// one cluster are both counted until a division of the box decides about one of them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "clock.hpp"
#include "rounding.hpp"
#include "surplus.hpp"

namespace unpooled {
namespace exact {

// The largest surplus, bounded from above; best boxes first.
class Ceiling {
public:
    double upper = 0;             // no cluster has a larger surplus
    int64_t boxes = 0;            // that were bounded
    std::vector<Column> columns;  // good clusters that the search met
    double best = 0;              // the largest surplus among them

    // A row of r.x differs from the true one, moved and turned, by some e. A squared distance is then at least (1 - 2^-39)
    // of what it seems, less 2^40 e^2: weights and budgets are moved accordingly.
    Ceiling(const Budgeted& r, double known, double tolerance, int64_t limit, int64_t work, const Clock& clock)
        : best(known), r_(r), clock_(clock), work_(work) {
        for (int i = 0; i < r.n; ++i) {
            w_.push_back(r.w[i] * (1 - 0x1.0p-39));
            b_.push_back((r.budgets[i] + r.w[i] * r.doubt[i] * 0x1.0p+41) * (1 + 0x1.0p-50) + kTiny);
        }
        run(tolerance, limit);
    }

private:
    struct Box {
        double bound;
        int64_t number;
        std::vector<double> mid, half, top;  // top: where its parabola is highest
        std::vector<double> pole;            // what exceeds the cut lies within `radius` of this point
        double radius = kInf;
        std::vector<int> rows;               // that may lie in a cluster about a point of the box
        int forced = 0;                      // the first of them that certainly do
        int pivot = -1;                      // the row whose chord costs most, if it costs much of the whole
        int wide = 0;                        // the column to halve
    };
    struct Lower {
        bool operator()(const std::unique_ptr<Box>& a, const std::unique_ptr<Box>& b) const {
            return a->bound != b->bound ? a->bound < b->bound : a->number > b->number;
        }
    };

    using Queue = std::vector<std::unique_ptr<Box>>;  // a heap

    const Budgeted& r_;
    const Clock& clock_;
    const int64_t work_;  // r_.work at which the search ends
    std::vector<double> w_, b_;
    double cut_ = 0;
    int64_t numbers_ = 0;

    void run(double tolerance, int64_t limit) {
        const int n = r_.n, d = r_.d;
        cut_ = best + tolerance;
        Queue open;
        auto root = std::make_unique<Box>();
        root->mid.resize(d), root->half.resize(d);
        for (int l = 0; l < d; ++l) {
            double low = kInf, high = -kInf;
            for (int i = 0; i < n; ++i) low = std::min(low, r_.row(i)[l]), high = std::max(high, r_.row(i)[l]);
            between(*root, l, low, high);
        }
        for (int i = 0; i < n; ++i) root->rows.push_back(i);
        push(std::move(root), open);
        double left = 0;  // the highest bound of a box that was not divided
        while (!open.empty()) {
            std::pop_heap(open.begin(), open.end(), Lower());
            std::unique_ptr<Box> box = std::move(open.back()), other;
            open.pop_back();
            if (box->bound <= cut_) break;  // and so are all others
            if (boxes >= limit || r_.work >= work_ || ((numbers_ & 255) == 0 && clock_.over())) {
                left = box->bound;
                break;
            }
            meet(*box);
            cut_ = std::max(cut_, best + tolerance);
            other = std::make_unique<Box>(*box);
            if (box->pivot >= 0) {
                std::swap(other->rows[other->forced], other->rows[box->pivot]);
                dismiss_foes(*other, other->rows[other->forced]);
                ++other->forced;
                box->rows.erase(box->rows.begin() + box->pivot);
            } else {
                const int l = box->wide;
                const double low = box->mid[l] - box->half[l], high = box->mid[l] + box->half[l], cut = box->mid[l];
                between(*other, l, low, cut);
                between(*box, l, cut, high);
            }
            push(std::move(other), open);
            push(std::move(box), open);
        }
        upper = std::max({cut_, left, 0.0});
    }

    // Leave out the rows that are in no cluster with row i, which is about to be the last of those that are forced.
    void dismiss_foes(Box& box, int i) const {
        if (r_.foes.empty()) return;
        const std::vector<int>& foes = r_.foes[i];
        auto is_foe = [&](int j) { return std::binary_search(foes.begin(), foes.end(), j); };
        box.rows.erase(std::remove_if(box.rows.begin() + box.forced + 1, box.rows.end(), is_foe), box.rows.end());
    }

    // The place of a row whose foe is there too, both with much left at the top of the box; -1 if they have not more than
    // `least`. Rows that are certain have foes that are not.
    int quarrel(const Box& box, double least) const {
        int at = -1;
        for (int a = box.forced; a < static_cast<int>(box.rows.size()); ++a) {
            const int i = box.rows[a];
            if (r_.foes[i].empty()) continue;
            const double own = b_[i] - w_[i] * r_.apart(i, box.top.data());
            for (int b = box.forced; b < static_cast<int>(box.rows.size()); ++b) {
                const int j = box.rows[b];
                if (!std::binary_search(r_.foes[i].begin(), r_.foes[i].end(), j)) continue;
                const double less = std::min(own, b_[j] - w_[j] * r_.apart(j, box.top.data()));
                if (less > least) least = less, at = a;
            }
        }
        return at;
    }

    // A box that holds everything from low to high in a column, though its middle and half are rounded.
    static void between(Box& box, int l, double low, double high) {
        box.mid[l] = 0.5 * low + 0.5 * high;
        box.half[l] = std::max(high - box.mid[l], box.mid[l] - low) * (1 + 0x1.0p-50) +
                      0x1.0p-51 * (std::fabs(low) + std::fabs(high));
    }

    void push(std::unique_ptr<Box> box, Queue& open) {
        if (!measure(*box)) return;
        box->number = ++numbers_;
        open.push_back(std::move(box));
        std::push_heap(open.begin(), open.end(), Lower());
    }

    // Look for a good cluster about the highest point.
    void meet(const Box& box) {
        double here = 0;
        for (int i : box.rows) here += std::max(0.0, r_.budgets[i] - r_.w[i] * r_.apart(i, box.top.data()));
        if (here <= best - 0.02 * std::fabs(best)) return;
        Column c = r_.climb(box.top.data());
        if (c.rows.empty()) return;
        const double s = r_.surplus(c);
        if (s > best) best = s;
        if (columns.size() < 400) columns.push_back(std::move(c));
    }

    // The bound of a box, which may shrink on the way; false if nothing in it exceeds the cut.
    bool measure(Box& box) {
        const int d = r_.d;
        double move[64], reach[64], far2[64];
        for (int pass = 0; pass < 6; ++pass) {
            ++boxes;
            double A = 0, K = 0, size = 0, S2 = 0, error = 0, worst = 0;
            double S1[64] = {0}, share[64] = {0};
            int kept = 0, at = -1;
            const int active = static_cast<int>(box.rows.size());
            r_.work += 15LL * (active + 4) * (d + 3);
            const double up = 1 + rounding(d + 6), down = 1 - rounding(d + 6);
            for (int j = 0; j < active; ++j) {
                const int i = box.rows[j];
                const double* row = r_.row(i);
                double near = 0, far = 0, square = 0, ball = 0;
                for (int l = 0; l < d; ++l) {
                    const double t = row[l] - box.mid[l], off = std::fabs(t);
                    const double gap = off > box.half[l] ? off - box.half[l] : 0.0, most = off + box.half[l];
                    move[l] = t;
                    reach[l] = most * most - gap * gap;
                    near += gap * gap;
                    far += most * most;
                    square += t * t;
                }
                if (box.radius < kInf) {
                    for (int l = 0; l < d; ++l) ball += (row[l] - box.pole[l]) * (row[l] - box.pole[l]);
                    const double off = std::sqrt(ball), gap = std::max(0.0, off * (1 - 0x1.0p-40) - box.radius);
                    const double most = off * (1 + 0x1.0p-40) + box.radius;
                    near = std::max(near, gap * gap), far = std::min(far, most * most);
                }
                double a = w_[i], k = b_[i];
                if (j >= box.forced) {
                    const double high = (b_[i] - w_[i] * near * down) + rounding(4) * std::fabs(b_[i]);
                    if (high <= 0) continue;  // it pays nowhere in the box
                    const double low = (b_[i] - w_[i] * far * up) - rounding(4) * std::fabs(b_[i]);
                    if (low < 0) {
                        const double slope = std::min(1.0, high / (high - low) * (1 + rounding(8)));
                        a = slope * w_[i];
                        k = slope * (b_[i] - low);
                        const double doubt = -slope * low;  // the chord's height over the term where that is zero
                        error += doubt;
                        if (doubt > worst) worst = doubt, at = kept;
                        for (int l = 0; l < d; ++l) share[l] += doubt * reach[l] / (far - near + kTiny);
                    }
                }
                box.rows[kept++] = i;
                A += a;
                K += k;
                size += std::fabs(k) + a * square;
                S2 += a * square;
                for (int l = 0; l < d; ++l) S1[l] += a * move[l];
            }
            box.rows.resize(kept);
            if (kept == 0 || !(A > 0)) return false;
            double outside = 0, top = K - S2;
            for (int l = 0; l < d; ++l) {
                const double m = S1[l] / A, away = std::max(0.0, std::fabs(m) - box.half[l]);
                far2[l] = A * away * away;
                top += S1[l] * m;
                outside += far2[l];
            }
            const double slip = rounding(2.0 * kept + 6 * d + 60) * 3 * (size + outside) + kTiny;
            box.bound = top - outside + slip;
            if (!(box.bound > cut_)) return false;
            box.top.resize(d);
            for (int l = 0; l < d; ++l)
                box.top[l] = box.mid[l] + std::min(std::max(S1[l] / A, -box.half[l]), box.half[l]);
            // what remains of the box where the parabola exceeds the cut
            bool shrunk = false;
            const double around = std::sqrt(std::max(0.0, top + 2 * slip - cut_) / A) * (1 + 0x1.0p-40);
            if (around < box.radius) {
                shrunk = around < 0.9 * box.radius;
                box.radius = 0;
                box.pole.resize(d);
                for (int l = 0; l < d; ++l) {
                    box.pole[l] = box.mid[l] + S1[l] / A;
                    box.radius += 0x1.0p-45 * (std::fabs(box.mid[l]) + std::fabs(S1[l] / A));
                }
                box.radius += around;
            }
            for (int l = 0; l < d; ++l) {
                const double spare = (top + 2 * slip - cut_) - (outside - far2[l]);
                const double radius = std::sqrt(std::max(0.0, spare) / A) * (1 + 0x1.0p-40);
                const double m = S1[l] / A, blur = 0x1.0p-45 * (box.half[l] + std::fabs(m));
                const double low = std::max(-box.half[l], m - radius - blur), high = std::min(box.half[l], m + radius + blur);
                if (!(low < high)) continue;
                if (high - low < 1.6 * box.half[l]) {
                    between(box, l, box.mid[l] + low - 0x1.0p-50 * std::fabs(box.mid[l]), box.mid[l] + high + 0x1.0p-50 * std::fabs(box.mid[l]));
                    shrunk = true;
                }
            }
            box.pivot = at >= 0 && at >= box.forced && worst > 0.3 * error ? at : -1;
            if (!r_.foes.empty()) {
                const int place = quarrel(box, error > 0 ? 0.5 * worst : -kInf);
                if (place >= 0) {
                    box.pivot = place;
                    return true;
                }
            }
            box.wide = 0;
            for (int l = 1; l < d; ++l)
                if (share[l] > share[box.wide]) box.wide = l;
            if (error <= 0) return settle(box);
            if (!shrunk) return true;
        }
        return true;
    }

    // All terms are certain: the bound is the surplus, up to rounding, and dividing further gains nothing.
    bool settle(const Box& box) {
        std::vector<int> members(box.rows);
        std::sort(members.begin(), members.end());
        Column c = r_.column(std::move(members));
        const double s = r_.surplus(c);
        best = std::max(best, s);
        columns.push_back(std::move(c));
        cut_ = std::max(cut_, box.bound);
        return false;
    }
};

}  // namespace exact
}  // namespace unpooled
