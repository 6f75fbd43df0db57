// Vectors of the instruction set this file is compiled for, as GCC/Clang vector extensions; Buffer, aligned memory.
// Everything is written for any vector length: W doubles are 2 (x86-64, ARM), 4 (AVX2) or 8 (AVX-512).
//
// Everything lives in a namespace named after the instruction set, and nothing from the standard library is
// instantiated here: a template shared between the sets could be linked in its wider version and run on a
// machine that lacks it. Contraction is off, so a multiply-add is one instruction exactly where fma() says so.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(UNPOOLED_VECTOR_BYTES)
#define UNPOOLED_PLAIN_AVX2 1
#elif defined(__AVX512F__) && !defined(UNPOOLED_VECTOR_BYTES)
#define UNPOOLED_PLAIN_AVX512 1
#endif

#define UNPOOLED_INLINE inline __attribute__((always_inline))
#define UNPOOLED_NOINLINE __attribute__((noinline))  // for a loop that needs the registers for itself
#define UNPOOLED_LAMBDA __attribute__((always_inline))

namespace unpooled {
namespace UNPOOLED_ISA {

#if defined(UNPOOLED_VECTOR_BYTES)
constexpr int VECTOR_BYTES = UNPOOLED_VECTOR_BYTES;
#elif defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX2__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

template <class T>
struct IndexOf;
template <>
struct IndexOf<double> {
    using type = int64_t;
};
template <>
struct IndexOf<float> {
    using type = int32_t;
};

template <class T, int N>
struct VectorOf {
    typedef T type __attribute__((vector_size(N * sizeof(T))));
};

template <class T>
constexpr int LANES = VECTOR_BYTES / static_cast<int>(sizeof(T));
template <class T>
using Vec = typename VectorOf<T, LANES<T>>::type;
template <class T>
using IndexVec = typename VectorOf<typename IndexOf<T>::type, LANES<T>>::type;
template <class T>
using Index = typename IndexOf<T>::type;

constexpr int W = LANES<double>;  // doubles side by side in a vector
using Vd = Vec<double>;
using Vi = IndexVec<double>;
using V4 = VectorOf<double, 4>::type;
using V2 = VectorOf<double, 2>::type;
using Vf = Vec<float>;
using F4 = VectorOf<float, 4>::type;

template <class V, class T>
UNPOOLED_INLINE V load(const T* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof(V));
    return v;
}

template <class V, class T>
UNPOOLED_INLINE void store(T* p, V v) {
    __builtin_memcpy(p, &v, sizeof(V));
}

template <class V, class T>
UNPOOLED_INLINE V spread(T value) {
    return value - V{};  // x - 0 is x, also for -0
}

// Rows as doubles, whatever they are stored as.
UNPOOLED_INLINE Vd widen(const double* p) { return load<Vd>(p); }
UNPOOLED_INLINE Vd widen(const float* p) {
#if defined(UNPOOLED_PLAIN_AVX2)  // one instruction, where GCC would convert by halves
    return (Vd)_mm256_cvtps_pd(_mm_loadu_ps(p));
#elif defined(UNPOOLED_PLAIN_AVX512)
    return (Vd)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#else
    return __builtin_convertvector(load<VectorOf<float, W>::type>(p), Vd);
#endif
}
UNPOOLED_INLINE V2 widen2(const double* p) { return load<V2>(p); }
UNPOOLED_INLINE V2 widen2(const float* p) { return V2{static_cast<double>(p[0]), static_cast<double>(p[1])}; }
UNPOOLED_INLINE V4 join(V2 low, V2 high) { return __builtin_shufflevector(low, high, 0, 1, 2, 3); }
UNPOOLED_INLINE V4 widen4(const double* p) { return load<V4>(p); }
UNPOOLED_INLINE V4 widen4(const float* p) {
#if defined(__AVX2__)
    return (V4)_mm256_cvtps_pd(_mm_loadu_ps(p));
#else
    return __builtin_convertvector(load<F4>(p), V4);
#endif
}

template <class V>
UNPOOLED_INLINE V fma(V a, V b, V c) {
    return a * b + c;
}
UNPOOLED_INLINE double fma(double a, double b, double c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}
#if defined(__AVX512F__)
template <>
UNPOOLED_INLINE VectorOf<double, 8>::type fma(VectorOf<double, 8>::type a, VectorOf<double, 8>::type b,
                                              VectorOf<double, 8>::type c) {
    return (VectorOf<double, 8>::type)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
template <>
UNPOOLED_INLINE VectorOf<float, 16>::type fma(VectorOf<float, 16>::type a, VectorOf<float, 16>::type b,
                                              VectorOf<float, 16>::type c) {
    return (VectorOf<float, 16>::type)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
#endif
#if defined(__FMA__)
template <>
UNPOOLED_INLINE V4 fma(V4 a, V4 b, V4 c) {
    return (V4)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
template <>
UNPOOLED_INLINE VectorOf<float, 8>::type fma(VectorOf<float, 8>::type a, VectorOf<float, 8>::type b,
                                             VectorOf<float, 8>::type c) {
    return (VectorOf<float, 8>::type)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
#elif defined(__aarch64__)
template <>
UNPOOLED_INLINE V2 fma(V2 a, V2 b, V2 c) {
    return (V2)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
template <>
UNPOOLED_INLINE VectorOf<float, 4>::type fma(VectorOf<float, 4>::type a, VectorOf<float, 4>::type b,
                                             VectorOf<float, 4>::type c) {
    return (VectorOf<float, 4>::type)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#endif

// The lower, or higher, of each lane.
UNPOOLED_INLINE Vd lower(Vd a, Vd b) {
#if defined(UNPOOLED_PLAIN_AVX2)
    return (Vd)_mm256_min_pd((__m256d)a, (__m256d)b);
#elif defined(UNPOOLED_PLAIN_AVX512)
    return (Vd)_mm512_min_pd((__m512d)a, (__m512d)b);
#else
    return a < b ? a : b;
#endif
}
UNPOOLED_INLINE Vd higher(Vd a, Vd b) {
#if defined(UNPOOLED_PLAIN_AVX2)
    return (Vd)_mm256_max_pd((__m256d)a, (__m256d)b);
#elif defined(UNPOOLED_PLAIN_AVX512)
    return (Vd)_mm512_max_pd((__m512d)a, (__m512d)b);
#else
    return a > b ? a : b;
#endif
}

UNPOOLED_INLINE Vf lower(Vf a, Vf b) {
#if defined(UNPOOLED_PLAIN_AVX2)
    return (Vf)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(UNPOOLED_PLAIN_AVX512)
    return (Vf)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return a < b ? a : b;
#endif
}
UNPOOLED_INLINE Vf higher(Vf a, Vf b) {
#if defined(UNPOOLED_PLAIN_AVX2)
    return (Vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(UNPOOLED_PLAIN_AVX512)
    return (Vf)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return a > b ? a : b;
#endif
}

// yes where a < b, else no; a and b are not negative.
UNPOOLED_INLINE Vi if_less(Vd a, Vd b, Vi yes, Vi no) {
#if defined(UNPOOLED_PLAIN_AVX2)
    // not negative, they are ordered as their bits are; the blend looks at the sign alone, and a subtraction of
    // integers runs on units that a comparison would take from the products
    return (Vi)_mm256_blendv_pd((__m256d)no, (__m256d)yes, (__m256d)((Vi)a - (Vi)b));
#else
    return a < b ? yes : no;
#endif
}

// A bit for each lane that is not 0.
UNPOOLED_INLINE int where(Vi v) {
#if defined(UNPOOLED_PLAIN_AVX2)
    return ~_mm256_movemask_pd((__m256d)(v == 0)) & 15;
#elif defined(UNPOOLED_PLAIN_AVX512)
    return _mm512_test_epi64_mask((__m512i)v, (__m512i)v);
#else
    int bits = 0;
    for (int i = 0; i < W; ++i) bits |= (v[i] != 0) << i;
    return bits;
#endif
}

// The lanes added pairwise: the same order for every vector.
UNPOOLED_INLINE double across(Vd v) {
    double part[W];
    store(part, v);
    for (int width = W / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) part[i] += part[i + width];
    return part[0];
}

UNPOOLED_INLINE bool any(Vi v) {
    int64_t bits = 0;
    for (int i = 0; i < W; ++i) bits |= v[i];
    return bits != 0;
}

constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
template <class N>
constexpr N smaller(N a, N b) {
    return b < a ? b : a;
}
template <class N>
constexpr N larger(N a, N b) {
    return a < b ? b : a;
}

// A number as an argument whose type says which.
template <int N>
struct Number {
    static constexpr int value = N;
};

// Memory on cache line boundaries, not initialised.
template <class T>
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(int64_t size) { resize(size); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(memory_); }

    void resize(int64_t size) {
        if (size <= size_) return;
        std::free(memory_);
        size_ = 0;
        memory_ = std::malloc(static_cast<size_t>(size) * sizeof(T) + 64);
        if (!memory_) throw std::bad_alloc();
        size_ = size;
        data_ = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory_) + 63) / 64 * 64);
    }

    void swap(Buffer& other) {
        void* const memory = memory_;
        T* const data = data_;
        const int64_t size = size_;
        memory_ = other.memory_;
        data_ = other.data_;
        size_ = other.size_;
        other.memory_ = memory;
        other.data_ = data;
        other.size_ = size;
    }

    T* get() { return data_; }
    const T* get() const { return data_; }
    T& operator[](int64_t i) { return data_[i]; }
    const T& operator[](int64_t i) const { return data_[i]; }

private:
    void* memory_ = nullptr;
    T* data_ = nullptr;
    int64_t size_ = 0;
};

inline void clear(double* p, int64_t count) {
    if (count > 0) std::memset(p, 0, static_cast<size_t>(count) * sizeof(double));
}
inline void copy(double* to, const double* from, int64_t count) {
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(double));
}

}  // namespace UNPOOLED_ISA
}  // namespace unpooled
