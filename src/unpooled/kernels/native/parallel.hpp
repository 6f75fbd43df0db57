// Work items over threads: workers take the next item from a counter; results are committed in the order of the items.
// Compiled once, for the plain instruction set, so nothing here is inline.
#pragma once
#include <cstdint>

namespace unpooled {

using Task = void (*)(void* context, int64_t item, int worker);

// Runs work(item) for items 0..count-1, each on one of `threads` workers. With commit, commit(item) follows its
// work(item) on the same worker, and the commits run one at a time in the order of the items.
void run(int threads, int64_t count, Task work, Task commit, void* context);

}  // namespace unpooled
