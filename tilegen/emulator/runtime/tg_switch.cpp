// Switching between the stacks of fibers: a few instructions on x86-64, ucontext elsewhere (or with
// TG_UCONTEXT), which costs a system call a switch.
#include "tg_internal.hpp"

#if !defined(__x86_64__) && !defined(TG_UCONTEXT)
#define TG_UCONTEXT 1
#endif

namespace tg {
namespace {
void* host_stack_pointer;
}

#if defined(TG_UCONTEXT)
}  // namespace tg
#include <ucontext.h>
namespace tg {
namespace {
ucontext_t host_context;
ucontext_t* contexts[max_threads];

ucontext_t* context_of(Fiber* fiber) {
  if (!fiber) return &host_context;
  ucontext_t*& context = contexts[fiber->linear];
  if (!context) context = static_cast<ucontext_t*>(calloc(1, sizeof(ucontext_t)));
  return context;
}
}  // namespace

void prepare(Fiber* fiber, uint8_t* stack, size_t bytes, void (*entry)()) {
  ucontext_t* context = context_of(fiber);
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = bytes;
  context->uc_link = &host_context;
  makecontext(context, entry, 0);
}

void switch_to(Fiber* from, Fiber* to) { swapcontext(context_of(from), context_of(to)); }

#else

// Saves what a call must keep, changes stacks, and returns by an indirect jump: `ret` would be
// mispredicted, since the processor pairs it with a call on the other stack.
extern "C" void tg_swap_stacks(void** save, void* load);
asm(R"(
.text
.p2align 4
.globl tg_swap_stacks
.hidden tg_swap_stacks
.type tg_swap_stacks, @function
tg_swap_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
.size tg_swap_stacks, .-tg_swap_stacks
)");

void prepare(Fiber* fiber, uint8_t* stack, size_t bytes, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;  // a return address for entry, which never returns; keeps the stack aligned
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  fiber->stack_pointer = top;
}

void switch_to(Fiber* from, Fiber* to) {
  tg_swap_stacks(from ? &from->stack_pointer : &host_stack_pointer,
                 to ? to->stack_pointer : host_stack_pointer);
}

#endif
}  // namespace tg
