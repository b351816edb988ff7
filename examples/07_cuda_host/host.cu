// Two kernels that tilegen wrote, in one C++ program: no tilegen, no Python, nothing but CUDA's runtime.
// README.md beside it says how to build it.
//
// It multiplies small integers, whose products and sums are exact, by whichever entry the addresses and
// strides allow, and compares every element, and what lies between the rows of D, with a product made here.

// The texts: each keeps its names in a namespace, product_kernel and deep_kernel.
#include "deep.cu"
#include "product.cu"
// Their launch headers: grids, bytes and conditions as functions and constants.
#include "deep.h"
#include "product.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#define CHECK(call) check((call), #call, __LINE__)

static void check(const cudaError_t status, const char *what, const int line)
{
    if (status == cudaSuccess)
        return;
    std::fprintf(stderr, "line %d: %s: %s\n", line, what, cudaGetErrorString(status));
    std::exit(2);
}

// ---- launching: all that a library has to keep of this file -----------------------------------------

// One product on the device. Leading dimensions count elements; every operand is row-major.
template <typename Element>
struct Product {
    int64_t M, N, K;
    float alpha;
    const Element *a;
    int64_t lda;
    const Element *b;
    int64_t ldb;
    float beta;
    const float *c;
    int64_t ldc;
    float *d;
    int64_t ldd;
};

static tilegen_operand operand(const void *first, const int64_t ld)
{
    return {reinterpret_cast<uint64_t>(first), ld, 0, 1};
}

// Blocks of a grid: a launch takes fewer than 2^31, and none of 0.
static unsigned blocks(const int64_t count)
{
    if (count >= INT64_C(1) << 31) {
        std::fprintf(stderr, "%lld blocks are more than a grid has\n", static_cast<long long>(count));
        std::exit(2);
    }
    return static_cast<unsigned>(count);
}

// Dynamic shared memory above 48 KiB is allowed once for each entry, on each device.
template <typename Entry>
static void allow(Entry *entry, const int dynamic_bytes)
{
    CHECK(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic_bytes));
}

static void allow_product()
{
    using namespace product_kernel;
    allow(product_wide, PRODUCT_WIDE_DYNAMIC_BYTES);
    allow(product_by8, PRODUCT_BY8_DYNAMIC_BYTES);
    allow(product_by4, PRODUCT_BY4_DYNAMIC_BYTES);
    allow(product_narrow, PRODUCT_NARROW_DYNAMIC_BYTES);
}

// D = alpha A B + beta C in bf16; returns the entry's name.
static const char *launch_product(const Product<uint16_t> &p, const cudaStream_t stream)
{
    using namespace product_kernel;
    const tilegen_operand a = operand(p.a, p.lda), b = operand(p.b, p.ldb);
    const tilegen_operand c = operand(p.c, p.ldc), d = operand(p.d, p.ldd);
    // C is not read where beta is 0, and then it asks for nothing.
    const tilegen_operand *const read_c = p.beta != 0 ? &c : nullptr;
    if (product_wide_accepts(&a, &b, read_c, &d)) {
        const unsigned grid = blocks(product_wide_grid(p.M, p.N, p.K, 1));
        if (grid == 0)
            return "nothing";
        product_wide<<<grid, PRODUCT_WIDE_BLOCK, PRODUCT_WIDE_DYNAMIC_BYTES, stream>>>(
            p.M, p.N, p.K, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc, p.d, p.ldd);
        CHECK(cudaGetLastError());
        return PRODUCT_WIDE_SYMBOL;
    }
    // The others have one parameter list, in which a step of 0 would broadcast, and one grid and block.
    const bool by8 = product_by8_accepts(&a, &b, read_c, &d), by4 = product_by4_accepts(&a, &b, read_c, &d);
    const auto entry = by8 ? product_by8 : by4 ? product_by4 : product_narrow;
    const unsigned grid = blocks(product_narrow_grid(p.M, p.N, p.K, 1));
    const int64_t a_step = 1, b_step = 1, c_step = 1;
    if (grid == 0)
        return "nothing";
    entry<<<grid, PRODUCT_NARROW_BLOCK, PRODUCT_NARROW_DYNAMIC_BYTES, stream>>>(
        p.M, p.N, p.K, p.alpha, p.a, p.lda, a_step, p.b, p.ldb, b_step, p.beta, p.c, p.ldc, c_step, p.d, p.ldd);
    CHECK(cudaGetLastError());
    return by8 ? PRODUCT_BY8_SYMBOL : by4 ? PRODUCT_BY4_SYMBOL : PRODUCT_NARROW_SYMBOL;
}

// The same in tf32: the sums of parts of K go to `partial`, and a second kernel finishes them.
static const char *launch_deep(const Product<float> &p, float *const partial, const cudaStream_t stream)
{
    using namespace deep_kernel;
    const tilegen_operand a = operand(p.a, p.lda), b = operand(p.b, p.ldb);
    const tilegen_operand c = operand(p.c, p.ldc), d = operand(p.d, p.ldd);
    const tilegen_operand *const read_c = p.beta != 0 ? &c : nullptr;
    const unsigned grid = blocks(deep_wide_grid(p.M, p.N, p.K, 1));
    const unsigned reduce_grid = blocks(deep_reduce_wide_grid(p.M, p.N, p.K, 1));
    const int64_t a_step = 1, b_step = 1, c_step = 1;
    if (grid == 0)
        return "nothing";
    if (deep_wide_accepts(&a, &b, read_c, &d)) {
        deep_wide<<<grid, DEEP_WIDE_BLOCK, DEEP_WIDE_DYNAMIC_BYTES, stream>>>(
            p.M, p.N, p.K, p.alpha, p.a, p.lda, p.b, p.ldb, partial);
        CHECK(cudaGetLastError());
        deep_reduce_wide<<<reduce_grid, DEEP_REDUCE_WIDE_BLOCK, DEEP_REDUCE_WIDE_DYNAMIC_BYTES, stream>>>(
            p.M, p.N, p.K, p.alpha, partial, p.beta, p.c, p.ldc, p.d, p.ldd);
        CHECK(cudaGetLastError());
        return DEEP_WIDE_SYMBOL;
    }
    const bool by8 = deep_by8_accepts(&a, &b, read_c, &d);
    const auto entry = by8 ? deep_by8 : deep_narrow;
    entry<<<grid, DEEP_NARROW_BLOCK, DEEP_NARROW_DYNAMIC_BYTES, stream>>>(
        p.M, p.N, p.K, p.alpha, p.a, p.lda, a_step, p.b, p.ldb, b_step, partial);
    CHECK(cudaGetLastError());
    deep_reduce_narrow<<<reduce_grid, DEEP_REDUCE_NARROW_BLOCK, DEEP_REDUCE_NARROW_DYNAMIC_BYTES, stream>>>(
        p.M, p.N, p.K, p.alpha, partial, p.beta, p.c, p.ldc, c_step, p.d, p.ldd);
    CHECK(cudaGetLastError());
    return by8 ? DEEP_BY8_SYMBOL : DEEP_NARROW_SYMBOL;
}

// ---- the check --------------------------------------------------------------------------------------

// What a kernel must not touch.
static const float UNTOUCHED = -1e9f;

template <typename Element>
static Element stored(float value);

template <>
float stored<float>(const float value)
{
    return value;
}

// The upper half of a float, which holds small integers whole.
template <>
uint16_t stored<uint16_t>(const float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);
}

// Small integers, so that every sum is exact in f32 and no order of adding shows.
static std::vector<float> integers(const int64_t count, const uint32_t salt)
{
    std::vector<float> out(static_cast<size_t>(count));
    for (size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<float>(static_cast<int>(((i + salt) * 2654435761u) >> 7 & 7) - 3);
    return out;
}

// Device memory from `offset` elements behind an aligned address on.
template <typename Element>
struct OnDevice {
    Element *memory = nullptr, *first = nullptr;

    OnDevice(const std::vector<Element> &from, const int64_t offset)
    {
        CHECK(cudaMalloc(&memory, (from.size() + static_cast<size_t>(offset) + 1) * sizeof(Element)));
        first = memory + offset;
        CHECK(cudaMemcpy(first, from.data(), from.size() * sizeof(Element), cudaMemcpyHostToDevice));
    }
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;
    ~OnDevice() { cudaFree(memory); }
};

// A problem: sizes, how much longer rows are than they need be, and where A and B begin.
struct Case {
    int64_t M, N, K, longer_a, longer_b, longer_d, offset;
    float alpha, beta;
};

// Solves it and returns the largest error, of D or of what lies between its rows.
template <typename Element, typename Launch>
static double solve(const Case &x, Launch launch)
{
    const int64_t lda = x.K + x.longer_a, ldb = x.N + x.longer_b, ldd = x.N + x.longer_d;
    const std::vector<float> a = integers(x.M * lda, 1), b = integers(x.K * ldb, 2), c = integers(x.M * ldd, 3);
    std::vector<Element> a_stored, b_stored;
    std::transform(a.begin(), a.end(), std::back_inserter(a_stored), stored<Element>);
    std::transform(b.begin(), b.end(), std::back_inserter(b_stored), stored<Element>);
    std::vector<float> d(c.size(), UNTOUCHED);
    const OnDevice<Element> a_there(a_stored, x.offset), b_there(b_stored, x.offset);
    const OnDevice<float> c_there(c, 0), d_there(d, 0);

    const char *const entry = launch(Product<Element>{
        x.M, x.N, x.K, x.alpha, a_there.first, lda, b_there.first, ldb, x.beta,
        x.beta != 0 ? c_there.first : nullptr, ldd, d_there.first, ldd});
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(d.data(), d_there.first, d.size() * sizeof(float), cudaMemcpyDeviceToHost));

    double worst = 0;
    for (int64_t i = 0; i < x.M; ++i)
        for (int64_t j = 0; j < ldd; ++j) {
            double want = UNTOUCHED;
            if (j < x.N) {
                double sum = 0;
                for (int64_t k = 0; k < x.K; ++k)
                    sum += static_cast<double>(a[i * lda + k]) * b[k * ldb + j];
                want = x.alpha * sum + (x.beta != 0 ? x.beta * static_cast<double>(c[i * ldd + j]) : 0);
            }
            const double error = std::fabs(d[i * ldd + j] - want);
            // A NaN is no number's error: it must not pass for none.
            worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
        }
    std::printf("%4lld x %4lld x %4lld by %-14s max error %g\n", static_cast<long long>(x.M),
        static_cast<long long>(x.N), static_cast<long long>(x.K), entry, worst);
    return worst;
}

int main()
{
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    allow_product();
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    double worst = 0;
    const Case products[] = {
        {300, 264, 200, 0, 0, 0, 0, 2, 3},   // whole rows of 16 bytes
        {300, 264, 200, 4, 4, 1, 0, 2, 3},   // of 8
        {300, 264, 200, 2, 2, 2, 0, 2, 0},   // of 4, and C is null
        {300, 263, 199, 0, 0, 0, 0, 2, 3},   // of one element
        {130, 136, 72, 0, 0, 0, 1, 1, 0},    // rows are whole, but begin an element behind
        {1, 1, 1, 0, 0, 0, 0, 1, 1},
        {64, 64, 0, 0, 0, 0, 0, 1, 3},       // no product: beta C alone
        {0, 64, 64, 0, 0, 0, 0, 1, 3},       // nothing to compute
    };
    for (const Case &x : products)
        worst = std::max(worst, solve<uint16_t>(x, [&](const Product<uint16_t> &p) { return launch_product(p, stream); }));

    const Case deep[] = {
        {96, 80, 2048, 0, 0, 0, 0, 2, 3},
        {96, 80, 2048, 2, 2, 2, 0, 2, 3},
        {97, 79, 2047, 0, 0, 0, 0, 2, 3},
        {96, 80, 2048, 0, 0, 0, 1, 1, 0},
        {5, 3, 1, 0, 0, 0, 0, 1, 1},
    };
    for (const Case &x : deep)
        worst = std::max(worst, solve<float>(x, [&](const Product<float> &p) {
            float *partial = nullptr;
            const int64_t bytes = std::max<int64_t>(deep_wide_workspace(p.M, p.N, p.K, 1), 1);
            CHECK(cudaMalloc(&partial, static_cast<size_t>(bytes)));
            const char *const entry = launch_deep(p, partial, stream);
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaFree(partial));
            return entry;
        }));

    CHECK(cudaStreamDestroy(stream));
    if (worst != 0) {
        std::printf("wrong: max error %g\n", worst);
        return 1;
    }
    std::puts("ok");
    return 0;
}
