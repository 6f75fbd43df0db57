// The groups whose means are nearest to that of a group: all compared while there are few groups, and through a tree of
// the means, of which a bounded number of leaves is looked at, where there are many.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "groups.hpp"

namespace unpooled {
namespace grouping {

constexpr int kFewGroups = 512;   // up to here all are compared
constexpr int kLeaf = 8;          // groups in a leaf, at most
constexpr int kLeaves = 24;       // leaves looked at for one group

// The kNearest best so far, by distance and then by number.
class Best {
public:
    void clear() { count_ = 0; }
    int count() const { return count_; }
    const int32_t* ids() const { return id_; }
    double worst() const { return count_ < kNearest ? std::numeric_limits<double>::infinity() : away_[count_ - 1]; }

    void offer(int g, double away) {
        if (count_ == kNearest) {
            if (away > away_[count_ - 1] || (away == away_[count_ - 1] && g > id_[count_ - 1])) return;
            --count_;
        }
        int at = count_++;
        for (; at > 0 && (away < away_[at - 1] || (away == away_[at - 1] && g < id_[at - 1])); --at) {
            away_[at] = away_[at - 1];
            id_[at] = id_[at - 1];
        }
        away_[at] = away;
        id_[at] = g;
    }

private:
    int count_ = 0;
    double away_[kNearest];
    int32_t id_[kNearest];
};

class Nearest {
public:
    explicit Nearest(const Groups& groups) : groups_(groups), width_(groups.width) {}

    // To be called before a round: the tree is that of the means then.
    void prepare() {
        nodes_.clear();
        ids_.clear();
        if (groups_.alive() <= kFewGroups) return;
        for (int g = 0; g < groups_.slots(); ++g)
            if (groups_.size(g)) ids_.push_back(g);
        build(0, static_cast<int>(ids_.size()));
    }

    const Best& of(int g) {
        best_.clear();
        if (nodes_.empty()) {
            for (int other = 0; other < groups_.slots(); ++other) consider(g, other);
        } else {
            search(g);
        }
        return best_;
    }

private:
    struct Node {
        int column;      // -1: a leaf
        double at;       // left of it is the first child, which is the next node
        int second;      // the other child
        int begin, end;  // of ids_
    };
    struct Open {
        double bound;
        int node;
        bool operator<(const Open& other) const {  // the queue gives the largest
            return bound > other.bound || (bound == other.bound && node > other.node);
        }
    };

    void consider(int g, int other) {
        if (other == g || !groups_.size(other)) return;
        best_.offer(other, apart(groups_.mean(g), groups_.mean(other), width_));
    }

    int build(int begin, int end) {
        const int node = static_cast<int>(nodes_.size());
        nodes_.push_back({-1, 0, 0, begin, end});
        if (end - begin <= kLeaf) return node;
        const int column = widest(begin, end), middle = begin + (end - begin) / 2;
        std::nth_element(ids_.begin() + begin, ids_.begin() + middle, ids_.begin() + end, [&](int a, int b) {
            const double x = groups_.mean(a)[column], y = groups_.mean(b)[column];
            return x < y || (x == y && a < b);
        });
        nodes_[node].column = column;
        nodes_[node].at = groups_.mean(ids_[middle])[column];
        build(begin, middle);
        const int second = build(middle, end);
        nodes_[node].second = second;
        return node;
    }

    // The column of the largest variance, over a sample where there are many.
    int widest(int begin, int end) const {
        const int stride = std::max(1, (end - begin) / 64);
        int best = 0;
        double most = -1;
        for (int j = 0; j < width_; ++j) {
            double sum = 0, squares = 0;
            int count = 0;
            const double about = groups_.mean(ids_[begin])[j];
            for (int i = begin; i < end; i += stride, ++count) {
                const double x = groups_.mean(ids_[i])[j] - about;
                sum += x;
                squares += x * x;
            }
            const double spread = squares - sum * sum / count;
            if (spread > most) {
                most = spread;
                best = j;
            }
        }
        return best;
    }

    void search(int g) {
        const double* mean = groups_.mean(g);
        open_.clear();
        open_.push_back({0.0, 0});
        for (int leaves = 0; leaves < kLeaves && !open_.empty(); ++leaves) {
            std::pop_heap(open_.begin(), open_.end());
            const Open next = open_.back();
            open_.pop_back();
            if (next.bound > best_.worst()) return;
            int at = next.node;
            while (nodes_[at].column >= 0) {
                const Node& node = nodes_[at];
                const double past = mean[node.column] - node.at;
                const int near = past < 0 ? at + 1 : node.second, far = past < 0 ? node.second : at + 1;
                open_.push_back({std::max(next.bound, past * past), far});
                std::push_heap(open_.begin(), open_.end());
                at = near;
            }
            for (int i = nodes_[at].begin; i < nodes_[at].end; ++i) __builtin_prefetch(groups_.mean(ids_[i]));
            for (int i = nodes_[at].begin; i < nodes_[at].end; ++i) consider(g, ids_[i]);
        }
    }

    const Groups& groups_;
    const int width_;
    Best best_;
    std::vector<Node> nodes_;
    std::vector<int32_t> ids_;
    std::vector<Open> open_;
};

}  // namespace grouping
}  // namespace unpooled
