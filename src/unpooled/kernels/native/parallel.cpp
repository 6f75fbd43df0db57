// Threads that take work items from a counter, and commit in order.
#include "parallel.hpp"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace unpooled {

namespace {

struct Queue {
    std::atomic<int64_t> next{0};
    std::mutex mutex;
    std::condition_variable turn;
    int64_t committed = 0;
    std::exception_ptr failure;
};

void work_through(Queue& queue, int worker, int64_t count, Task work, Task commit, void* context) {
    for (;;) {
        const int64_t item = queue.next.fetch_add(1);
        if (item >= count) return;
        try {
            work(context, item, worker);
        } catch (...) {
            std::lock_guard<std::mutex> lock(queue.mutex);
            if (!queue.failure) queue.failure = std::current_exception();
            queue.turn.notify_all();
            return;
        }
        if (!commit) continue;
        std::unique_lock<std::mutex> lock(queue.mutex);
        queue.turn.wait(lock, [&] { return queue.committed == item || queue.failure; });
        if (queue.failure) return;
        commit(context, item, worker);
        ++queue.committed;
        queue.turn.notify_all();
    }
}

}  // namespace

void run(int threads, int64_t count, Task work, Task commit, void* context) {
    if (threads > count) threads = static_cast<int>(count);
    if (threads <= 1) {
        for (int64_t item = 0; item < count; ++item) {
            work(context, item, 0);
            if (commit) commit(context, item, 0);
        }
        return;
    }
    Queue queue;
    std::vector<std::thread> workers;
    workers.reserve(threads - 1);
    try {
        for (int worker = 1; worker < threads; ++worker)
            workers.emplace_back([&, worker] { work_through(queue, worker, count, work, commit, context); });
    } catch (...) {
        // the system gives no more threads: the ones there are do all the work
    }
    work_through(queue, 0, count, work, commit, context);
    for (std::thread& worker : workers) worker.join();
    if (queue.failure) std::rethrow_exception(queue.failure);
}

}  // namespace unpooled
