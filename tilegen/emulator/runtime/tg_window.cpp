// The first byte of the shared window. It is linked first, and its alignment becomes the segment's.
asm(R"(
.section .tbss,"awT",@nobits
.balign 1024
.globl tg_shared_window
.type tg_shared_window, @object
tg_shared_window:
.size tg_shared_window, 0
.previous
)");
