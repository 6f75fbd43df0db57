// The widest table of kernels that this machine can run.
#include "dispatch.hpp"

#include <cstring>

namespace unpooled {

namespace baseline {
extern const Table table;
}
#if defined(UNPOOLED_X86)
namespace v3 {
extern const Table table;
}
namespace v4 {
extern const Table table;
}
#endif

const Table* choose(const char* name) {
    const bool any = name[0] == '\0';
#if defined(UNPOOLED_X86)
    __builtin_cpu_init();
    const bool has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_v4 = has_v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (has_v4 && (any || !std::strcmp(name, v4::table.isa))) return &v4::table;
    if (has_v3 && (any || !std::strcmp(name, v3::table.isa))) return &v3::table;
#endif
    return any || !std::strcmp(name, baseline::table.isa) ? &baseline::table : nullptr;
}

}  // namespace unpooled
