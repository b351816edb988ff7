// What was found, and how the run ends: results go back through the job's file, then the process exits.
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "tg_races.hpp"

namespace tg {

Job* job;

double launch_seconds();
extern int job_file;

namespace {

constexpr uint32_t most_findings = 64;
Finding findings[most_findings];
uint32_t finding_count;

struct Where {
  int line;
  uint64_t pc;
};
Where where_is(uint32_t site) {
  if (site & site_is_line) return {int(site & ~site_is_line), 0};
  return {0, site};
}

void record(const char* kind, Where at, Where other, const char* format, va_list values) {
  for (uint32_t i = 0; i < finding_count; i++) {
    Finding& known = findings[i];
    if (known.line == at.line && known.pc == at.pc && known.other_line == other.line &&
        known.other_pc == other.pc && !strcmp(known.kind, kind)) {
      known.count++;
      return;
    }
  }
  if (finding_count == most_findings) return;
  Finding& found = findings[finding_count++];
  snprintf(found.kind, sizeof found.kind, "%s", kind);
  found.line = at.line;
  found.pc = at.pc;
  found.other_line = other.line;
  found.other_pc = other.pc;
  found.count = 1;
  if (current) {
    found.has_thread = 1;
    found.block[0] = block_index.x;
    found.block[1] = block_index.y;
    found.block[2] = block_index.z;
    found.thread = current->linear;
    found.warp = current->warp;
    found.lane = current->lane;
  }
  vsnprintf(found.message, sizeof found.message, format, values);
}

bool put(off_t at, const void* data, size_t bytes) {
  return pwrite(job_file, data, bytes, at) == ssize_t(bytes);
}

uint64_t switches_before;
uint32_t ticks_without_switch, ticks;
constexpr uint32_t tick_ms = 20;

uintptr_t code_address(void* context) {
#if defined(__x86_64__)
  return uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return uintptr_t(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#else
  (void)context;
  return 0;
#endif
}

void on_fault(int number, siginfo_t* info, void* context) {
  const void* pc = reinterpret_cast<void*>(code_address(context));
  uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  char where[128];
  signal(number, SIG_DFL);  // a fault while this one is told ends the process
  if (number == SIGSEGV || number == SIGBUS) {
    if (near_stacks(info->si_addr))
      fail_at("stack-overflow", 0, pc, "the thread's local variables need more than its stack");
    // The processor gives no address for some faults of vector instructions: they are misaligned.
    if (address == 0 && info->si_code == SI_KERNEL)
      fail_at("misaligned", 0, pc, "a vector access at an address that is no multiple of its size");
    explain_address(address, where, sizeof where);
    fail_at("out-of-bounds", 0, pc, "access at %s", where);
  }
  if (number == SIGFPE) fail_at("division-by-zero", 0, pc, "an integer is divided by zero");
  fail_at("crash", 0, pc, "the kernel text ended by signal %d", number);
}

// Processor time passes: whoever runs for long without a switch is in an endless loop.
void on_tick(int, siginfo_t*, void* context) {
  const void* pc = reinterpret_cast<void*>(code_address(context));
  ticks++;
  ticks_without_switch = switches == switches_before ? ticks_without_switch + 1 : 0;
  switches_before = switches;
  if (!current) return;
  if (job->time_ms && ticks * tick_ms > job->time_ms)
    fail_at("time-limit", 0, in_image(pc) ? pc : nullptr,
            "the launch takes more than %u ms of processor time", job->time_ms);
  if (job->loop_ms && ticks_without_switch * tick_ms > job->loop_ms)
    fail_at("endless-loop", 0, in_image(pc) ? pc : nullptr,
            "the thread has run for %u ms without coming to a barrier or to its end", job->loop_ms);
}

}  // namespace

void report_at(const char* kind, int line, const void* pc, const char* format, ...) {
  va_list values;
  va_start(values, format);
  record(kind, {line, reinterpret_cast<uintptr_t>(pc)}, {0, 0}, format, values);
  va_end(values);
}

void report_pair(const char* kind, uint32_t site, uint32_t other, const char* format, ...) {
  va_list values;
  va_start(values, format);
  record(kind, where_is(site), where_is(other), format, values);
  va_end(values);
}

void fail_at(const char* kind, int line, const void* pc, const char* format, ...) {
  va_list values;
  va_start(values, format);
  record(kind, {line, reinterpret_cast<uintptr_t>(pc)}, {0, 0}, format, values);
  va_end(values);
  finish();
}

void report(const char* kind, int line, const char* format, ...) {
  va_list values;
  va_start(values, format);
  record(kind, {line, 0}, {0, 0}, format, values);
  va_end(values);
}

void fail(const char* kind, int line, const char* format, ...) {
  va_list values;
  va_start(values, format);
  record(kind, {line, 0}, {0, 0}, format, values);
  va_end(values);
  finish();
}

void finish() {
  fflush(stdout);
  copy_back();
  Result result = {};
  result.magic = job_magic;
  result.findings = finding_count;
  result.access_sites = access_sites.size;
  result.stretches = stretches;
  result.parted = parted;
  result.switches = switches;
  result.barriers = barriers_passed;
  result.collectives = collectives_run;
  result.shared_bytes = shared_size;
  result.races = race_count;
  result.seconds = launch_seconds();
  off_t at = off_t(job->results);
  bool written = put(at + sizeof result, findings, sizeof(Finding) * finding_count) &&
                 put(at + sizeof result + sizeof(Finding) * finding_count, access_sites.data,
                     sizeof(AccessSite) * access_sites.size) &&
                 put(at, &result, sizeof result);
  _exit(written ? 0 : 1);
}

void watch_signals() {
  constexpr size_t bytes = 64 * 1024;
  stack_t stack = {};
  stack.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack.ss_size = bytes;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  action.sa_sigaction = on_fault;
  const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  for (int number : faults) sigaction(number, &action, nullptr);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  action.sa_sigaction = on_tick;
  sigaction(SIGVTALRM, &action, nullptr);
  itimerval every = {};
  every.it_interval.tv_usec = every.it_value.tv_usec = tick_ms * 1000;
  setitimer(ITIMER_VIRTUAL, &every, nullptr);
}

}  // namespace tg
