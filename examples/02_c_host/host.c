/* A C99 host program for a kernel that tilegen wrote: no tilegen, no Python, no OpenCL headers.
 *
 *   tilegen build examples/gemm_f32.toml --backend opencl -o out
 *   cc -std=c99 -O2 -DHEADER="\"$(ls $PWD/out/gemm_*.h)\"" examples/02_c_host/host.c -o host -ldl
 *   ./host out [libOpenCL.so.1]
 *
 * It reads the kernel's text from the folder, builds it with the OpenCL library that the second
 * argument (or $OPENCL_LIBRARY) names, multiplies small integers, whose products and sums f32
 * holds exactly, and compares every element. The header says what the kernel needs: the symbol,
 * the index of each argument, the grid, and the entry that may run on given strides.
 *
 * With the CPU runtime from pip (python -m pip install 'tilegen[cpu]') name the runtime itself:
 * lib/libintelocl.so in the folder of the virtual environment.
 */
#include HEADER

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the few OpenCL declarations that are needed (OpenCL 1.2, CL/cl.h) ---------------------- */

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_event *cl_event;
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_bitfield;

enum { CL_SUCCESS = 0, CL_TRUE = 1, CL_PROGRAM_BUILD_LOG = 0x1183 };
#define CL_DEVICE_TYPE_ALL ((cl_bitfield)0xFFFFFFFF)
#define CL_MEM_READ_WRITE ((cl_bitfield)1 << 0)
#define CL_MEM_COPY_HOST_PTR ((cl_bitfield)1 << 5)

static cl_int (*clGetPlatformIDs)(cl_uint, cl_platform_id *, cl_uint *);
static cl_int (*clGetDeviceIDs)(cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *);
static cl_context (*clCreateContext)(
    const intptr_t *, cl_uint, const cl_device_id *,
    void (*)(const char *, const void *, size_t, void *), void *, cl_int *);
static cl_command_queue (*clCreateCommandQueue)(cl_context, cl_device_id, cl_bitfield, cl_int *);
static cl_program (*clCreateProgramWithSource)(
    cl_context, cl_uint, const char **, const size_t *, cl_int *);
static cl_int (*clBuildProgram)(
    cl_program, cl_uint, const cl_device_id *, const char *, void (*)(cl_program, void *), void *);
static cl_int (*clGetProgramBuildInfo)(cl_program, cl_device_id, cl_uint, size_t, void *, size_t *);
static cl_kernel (*clCreateKernel)(cl_program, const char *, cl_int *);
static cl_mem (*clCreateBuffer)(cl_context, cl_bitfield, size_t, void *, cl_int *);
static cl_int (*clSetKernelArg)(cl_kernel, cl_uint, size_t, const void *);
static cl_int (*clEnqueueNDRangeKernel)(
    cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,
    const cl_event *, cl_event *);
static cl_int (*clEnqueueReadBuffer)(
    cl_command_queue, cl_mem, cl_uint, size_t, size_t, void *, cl_uint, const cl_event *, cl_event *);
static cl_int (*clReleaseMemObject)(cl_mem);
static cl_int (*clReleaseKernel)(cl_kernel);

static void fail(const char *what, long code)
{
    fprintf(stderr, "%s failed (%ld)\n", what, code);
    exit(1);
}

static void check(cl_int code, const char *what)
{
    if (code != CL_SUCCESS)
        fail(what, code);
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL)
        fail(name, 0);
    return found;
}

static void load_opencl(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    /* ISO C has no cast from void * to a function pointer; POSIX asks for this one. */
#define LOAD(name) *(void **)(&name) = symbol(library, #name)
    LOAD(clGetPlatformIDs);
    LOAD(clGetDeviceIDs);
    LOAD(clCreateContext);
    LOAD(clCreateCommandQueue);
    LOAD(clCreateProgramWithSource);
    LOAD(clBuildProgram);
    LOAD(clGetProgramBuildInfo);
    LOAD(clCreateKernel);
    LOAD(clCreateBuffer);
    LOAD(clSetKernelArg);
    LOAD(clEnqueueNDRangeKernel);
    LOAD(clEnqueueReadBuffer);
    LOAD(clReleaseMemObject);
    LOAD(clReleaseKernel);
#undef LOAD
}

/* ---- the host program ------------------------------------------------------------------------ */

typedef struct {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_program program;
} Machine;

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (memory == NULL)
        fail("calloc", (long)(count * size));
    return memory;
}

static char *read_text(const char *folder, const char *name, size_t *size)
{
    char *path = allocate(strlen(folder) + strlen(name) + 2, 1);
    sprintf(path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail(path, 0);
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    char *text = allocate((size_t)length + 1, 1);
    *size = fread(text, 1, (size_t)length, file);
    fclose(file);
    free(path);
    return text;
}

static Machine start(const char *folder)
{
    Machine m;
    cl_platform_id platforms[8];
    cl_uint count = 0, devices = 0;
    cl_int code;
    check(clGetPlatformIDs(8, platforms, &count), "clGetPlatformIDs");
    for (cl_uint i = 0; i < count && i < 8 && devices == 0; ++i)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &m.device, &devices) != CL_SUCCESS)
            devices = 0;
    if (devices == 0)
        fail("looking for an OpenCL device", (long)count);
    m.context = clCreateContext(NULL, 1, &m.device, NULL, NULL, &code);
    check(code, "clCreateContext");
    m.queue = clCreateCommandQueue(m.context, m.device, 0, &code);
    check(code, "clCreateCommandQueue");

    size_t size = 0;
    char *text = read_text(folder, GEMM_SOURCE_FILE, &size);
    m.program = clCreateProgramWithSource(m.context, 1, (const char **)&text, &size, &code);
    check(code, "clCreateProgramWithSource");
    code = clBuildProgram(m.program, 1, &m.device, "", NULL, NULL);
    if (code != CL_SUCCESS) {
        size_t length = 0;
        clGetProgramBuildInfo(m.program, m.device, CL_PROGRAM_BUILD_LOG, 0, NULL, &length);
        char *log = allocate(length + 1, 1);
        clGetProgramBuildInfo(m.program, m.device, CL_PROGRAM_BUILD_LOG, length, log, NULL);
        fprintf(stderr, "%s\n", log);
        fail("clBuildProgram", code);
    }
    free(text);
    return m;
}

static cl_mem buffer(const Machine *m, float *from, size_t count)
{
    cl_int code;
    cl_mem made = clCreateBuffer(
        m->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, count * sizeof *from, from, &code);
    check(code, "clCreateBuffer");
    return made;
}

static float small(size_t i, unsigned salt)
{
    return (float)((int)((i * 2654435761u + salt * 40503u) >> 7 & 7) - 3);
}

/* D = 2 A B + 3 C, row-major with the given leading dimensions; returns the wrong elements. */
static long multiply(
    const Machine *m, int64_t M, int64_t N, int64_t K, int64_t lda, int64_t ldb, int64_t ldd)
{
    size_t size_a = (size_t)(M * lda), size_b = (size_t)(K * ldb), size_d = (size_t)(M * ldd);
    float *a = allocate(size_a, sizeof *a), *b = allocate(size_b, sizeof *b);
    float *c = allocate(size_d, sizeof *c), *d = allocate(size_d, sizeof *d);
    for (size_t i = 0; i < size_a; ++i)
        a[i] = small(i, 1);
    for (size_t i = 0; i < size_b; ++i)
        b[i] = small(i, 2);
    for (size_t i = 0; i < size_d; ++i) {
        c[i] = small(i, 3);
        d[i] = -1e9f;
    }
    cl_mem on_a = buffer(m, a, size_a), on_b = buffer(m, b, size_b);
    cl_mem on_c = buffer(m, c, size_d), on_d = buffer(m, d, size_d);

    /* A buffer starts at an aligned address, so the offset in it tells the alignment. */
    tilegen_operand op_a = {0, lda, 0, 1}, op_b = {0, ldb, 0, 1};
    tilegen_operand op_c = {0, ldd, 0, 1}, op_d = {0, ldd, 0, 1};
    int wide = gemm_wide_accepts(&op_a, &op_b, &op_c, &op_d);
    if (!wide && !gemm_narrow_accepts(&op_a, &op_b, &op_c, &op_d))
        fail("no entry accepts these strides: choosing", 0);

    cl_int code;
    cl_kernel kernel = clCreateKernel(m->program, wide ? GEMM_WIDE_SYMBOL : GEMM_NARROW_SYMBOL, &code);
    check(code, "clCreateKernel");
    int64_t zero = 0, one = 1;
    float alpha = 2, beta = 3;
#define ARG(NAME, value)                                                                           \
    check(                                                                                         \
        clSetKernelArg(                                                                            \
            kernel, wide ? GEMM_WIDE_ARG_##NAME : GEMM_NARROW_ARG_##NAME, sizeof(value), &(value)), \
        #NAME)
    ARG(M, M);
    ARG(N, N);
    ARG(K, K);
    ARG(ALPHA, alpha);
    ARG(A, on_a);
    ARG(A_OFFSET, zero);
    ARG(LDA, lda);
    ARG(B, on_b);
    ARG(B_OFFSET, zero);
    ARG(LDB, ldb);
    ARG(BETA, beta);
    ARG(C, on_c);
    ARG(C_OFFSET, zero);
    ARG(LDC, ldd);
    ARG(D, on_d);
    ARG(D_OFFSET, zero);
    ARG(LDD, ldd);
#undef ARG
    if (!wide) { /* only the narrow entry can broadcast */
        check(clSetKernelArg(kernel, GEMM_NARROW_ARG_A_STEP, sizeof one, &one), "A_STEP");
        check(clSetKernelArg(kernel, GEMM_NARROW_ARG_B_STEP, sizeof one, &one), "B_STEP");
        check(clSetKernelArg(kernel, GEMM_NARROW_ARG_C_STEP, sizeof one, &one), "C_STEP");
    }

    size_t block = wide ? GEMM_WIDE_BLOCK : GEMM_NARROW_BLOCK;
    int64_t groups = wide ? gemm_wide_grid(M, N, K, 1) : gemm_narrow_grid(M, N, K, 1);
    size_t items = (size_t)groups * block;
    if (groups > 0)
        check(
            clEnqueueNDRangeKernel(m->queue, kernel, 1, NULL, &items, &block, 0, NULL, NULL),
            "clEnqueueNDRangeKernel");
    check(
        clEnqueueReadBuffer(m->queue, on_d, CL_TRUE, 0, size_d * sizeof *d, d, 0, NULL, NULL),
        "clEnqueueReadBuffer");

    long wrong = 0;
    for (int64_t i = 0; i < M; ++i)
        for (int64_t j = 0; j < ldd; ++j) {
            double want = -1e9; /* what lies between the rows of D must stay as it was */
            if (j < N) {
                double sum = 0;
                for (int64_t k = 0; k < K; ++k)
                    sum += (double)a[i * lda + k] * b[k * ldb + j];
                want = 2 * sum + 3 * (double)c[i * ldd + j];
            }
            if ((double)d[i * ldd + j] != want && wrong++ == 0)
                fprintf(stderr, "row %ld, column %ld: got %g, want %g\n", (long)i, (long)j,
                        (double)d[i * ldd + j], want);
        }
    printf("%ld x %ld x %ld by %s, %ld groups of %ld: %ld wrong\n", (long)M, (long)N, (long)K,
           wide ? GEMM_WIDE_SYMBOL : GEMM_NARROW_SYMBOL, (long)groups, (long)block, wrong);
    check(clReleaseKernel(kernel), "clReleaseKernel");
    cl_mem buffers[] = {on_a, on_b, on_c, on_d};
    for (int i = 0; i < 4; ++i)
        check(clReleaseMemObject(buffers[i]), "clReleaseMemObject");
    free(a);
    free(b);
    free(c);
    free(d);
    return wrong;
}

int main(int count, char **words)
{
    if (count < 2) {
        fprintf(stderr, "usage: %s FOLDER [LIBRARY]\n", words[0]);
        return 2;
    }
    const char *library = count > 2 ? words[2] : getenv("OPENCL_LIBRARY");
    load_opencl(library != NULL ? library : "libOpenCL.so.1");
    Machine machine = start(words[1]);
    long wrong = multiply(&machine, 1000, 999, 77, 77, 999, 999);
    wrong += multiply(&machine, 1000, 999, 77, 80, 1008, 1008);
    wrong += multiply(&machine, 1, 1, 1, 1, 1, 1);
    if (wrong != 0)
        return 1;
    puts("ok");
    return 0;
}
