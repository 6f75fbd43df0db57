// Work items (small sites together, or one chunk of a large site) and the workers that take them.
//
// Where a site is cut depends on its own number of rows alone, never on the number of threads or on other sites: so a
// site's sums have the same bits alone or among others, on one thread or on many.
#pragma once
#include "parallel.hpp"
#include "simd.hpp"
#include "table.hpp"

namespace unpooled {
namespace UNPOOLED_ISA {

// Either whole sites, or one chunk of the rows of a single site.
struct WorkItem {
    int64_t first_site, last_site;  // [first, last)
    int64_t begin, end;             // rows
    bool chunk;
    bool opens;  // the first chunk of its site
};

// Rows of a chunk of a site with n rows. At most 64 chunks: the sums of each take R k d numbers.
inline int64_t chunk_rows(int64_t n) { return larger<int64_t>(8192, round_up((n + 63) / 64, 128)); }

class WorkItems {
public:
    // Small sites go together up to `together` rows; without `chunks` large ones stay whole.
    WorkItems(const Rows& rows, bool chunks, int64_t together = 2048) {
        for (int pass = 0; pass < 2; ++pass) {
            count_ = 0;
            int64_t site = 0;
            while (site < rows.sites) {
                const int64_t begin = rows.offsets[site], n = rows.offsets[site + 1] - begin;
                const int64_t size = chunk_rows(n);
                if (chunks && n > size) {
                    for (int64_t at = 0; at < n; at += size)
                        put({site, site + 1, begin + at, begin + smaller(at + size, n), true, at == 0});
                    ++site;
                    continue;
                }
                int64_t last = site + 1;
                while (last < rows.sites && rows.offsets[last + 1] - begin <= together) ++last;
                put({site, last, begin, rows.offsets[last], false, true});
                site = last;
            }
            if (pass == 0) items_.resize(larger<int64_t>(count_, 1));
        }
    }

    int64_t count() const { return count_; }
    const WorkItem& operator[](int64_t i) const { return items_[i]; }

private:
    void put(const WorkItem& item) {
        if (items_.get()) items_[count_] = item;
        ++count_;
    }

    Buffer<WorkItem> items_;
    int64_t count_ = 0;
};

// Threads worth starting for so many multiply-adds: below 2e6 (about a millisecond) none.
inline int useful_threads(int threads, double operations) {
    return operations < 2e6 ? 1 : threads;
}

// One Worker per thread, made by `make`.
template <class Worker>
class Team {
public:
    template <class Make>
    Team(int threads, const Make& make) : workers_(larger(threads, 1)) {
        for (; size_ < larger(threads, 1); ++size_) workers_[size_] = make();
    }
    Team(const Team&) = delete;
    ~Team() {
        for (int i = 0; i < size_; ++i) delete workers_[i];
    }
    int size() const { return size_; }
    Worker& operator[](int i) { return *workers_[i]; }

private:
    Buffer<Worker*> workers_;
    int size_ = 0;
};

template <class Work>
void each(int threads, int64_t count, Work& work) {
    run(threads, count, [](void* c, int64_t item, int worker) { (*static_cast<Work*>(c))(item, worker); }, nullptr,
        &work);
}

// work.compute(item, worker), then work.commit(item, worker) in order.
template <class Work>
void each_in_order(int threads, int64_t count, Work& work) {
    run(
        threads, count, [](void* c, int64_t item, int worker) { static_cast<Work*>(c)->compute(item, worker); },
        [](void* c, int64_t item, int worker) { static_cast<Work*>(c)->commit(item, worker); }, &work);
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
