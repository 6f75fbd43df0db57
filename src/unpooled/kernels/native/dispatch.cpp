// The widest table of kernels that this machine can run.
#include "dispatch.hpp"

#include <cstring>

#if defined(UNPOOLED_X86)
#include <cpuid.h>
#endif

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

#if defined(UNPOOLED_X86)
// Asked of the processor itself: __builtin_cpu_supports needs a part of the compiler's library that not every system
// links. The operating system must save the wide registers, too (XGETBV): bits 1 and 2 for AVX, 5 to 7 for AVX-512.
struct Processor {
    bool v3 = false, v4 = false;

    Processor() {
        unsigned a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d)) return;
        const bool fma = c >> 12 & 1, saves = c >> 27 & 1, avx = c >> 28 & 1;
        if (!fma || !saves || !avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
        unsigned kept, high;
        __asm__ volatile("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
        v3 = (kept & 0x06) == 0x06 && (b >> 5 & 1);
        const unsigned wide = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // AVX-512 F, DQ, BW, VL
        v4 = v3 && (kept & 0xe6) == 0xe6 && (b & wide) == wide;
    }
};
#endif

const Table* choose(const char* name) {
    const bool any = name[0] == '\0';
#if defined(UNPOOLED_X86)
    static const Processor has;
    if (has.v4 && (any || !std::strcmp(name, v4::table.isa))) return &v4::table;
    if (has.v3 && (any || !std::strcmp(name, v3::table.isa))) return &v3::table;
#endif
    return any || !std::strcmp(name, baseline::table.isa) ? &baseline::table : nullptr;
}

}  // namespace unpooled
