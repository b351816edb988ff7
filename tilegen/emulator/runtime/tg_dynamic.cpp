// The dynamic part of the shared window. It is linked last, so that it ends the thread-local segment.
// TG_DYNAMIC_NAMES labels it with the names that the kernel text declares as `extern __shared__`, and
// TG_DYNAMIC_ALIGN is the alignment that it asks for, which ptxas keeps behind static variables too.
#include "tg_internal.hpp"

asm(R"(
.section .tbss,"awT",@nobits
.balign )" TG_DYNAMIC_ALIGN R"(
.globl tg_dynamic_shared
.type tg_dynamic_shared, @object
tg_dynamic_shared:
)" TG_DYNAMIC_NAMES R"(
.zero 232448
.size tg_dynamic_shared, 232448
.previous
)");

static_assert(tg::dynamic_reserve == 232448, "the size in the lines above");
