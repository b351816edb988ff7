// The sub-group functions of sub_group.cl.j2 for a checker that has none (oclgrind): put before an emitted text whose
// work-group is one sub-group. A broadcast is two barriers, so a lane that misses one is a divergence.
// OpenCL C 1.2 has no variables of a program but constants, and oclgrind lets a pointer into one write there.
enum { EXCHANGES = 4096 };
__constant double exchanged[EXCHANGES] = {0};

int __attribute__((overloadable)) broadcast_by_barriers(const int x, const uint lane)
{
    __global int *const exchange = (__global int *)(ulong)(exchanged + get_group_id(0) % EXCHANGES);
    if (get_local_id(0) == lane)
        *exchange = x;
    barrier(CLK_GLOBAL_MEM_FENCE);
    const int from_lane = *exchange;
    barrier(CLK_GLOBAL_MEM_FENCE);
    return from_lane;
}

float __attribute__((overloadable)) broadcast_by_barriers(const float x, const uint lane)
{
    __global float *const exchange = (__global float *)(ulong)(exchanged + get_group_id(0) % EXCHANGES);
    if (get_local_id(0) == lane)
        *exchange = x;
    barrier(CLK_GLOBAL_MEM_FENCE);
    const float from_lane = *exchange;
    barrier(CLK_GLOBAL_MEM_FENCE);
    return from_lane;
}

double __attribute__((overloadable)) broadcast_by_barriers(const double x, const uint lane)
{
    __global double *const exchange = (__global double *)(ulong)(exchanged + get_group_id(0) % EXCHANGES);
    if (get_local_id(0) == lane)
        *exchange = x;
    barrier(CLK_GLOBAL_MEM_FENCE);
    const double from_lane = *exchange;
    barrier(CLK_GLOBAL_MEM_FENCE);
    return from_lane;
}

#define sub_group_broadcast broadcast_by_barriers
#define get_sub_group_id() 0u
#define get_sub_group_local_id() ((uint)get_local_id(0))
// oclgrind 21.10 does not know what LLVM leaves of restrict where a function is inlined always.
#define restrict
