// The program round a kernel: reads the job, runs the blocks of the grid in order, gives results back.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tg_internal.hpp"

namespace tg {

int job_file;

namespace {

constexpr uint32_t most_hooks = 8;
void (*block_begins[most_hooks])();
void (*block_ends[most_hooks])();
uint32_t hooks;

const Entry* entry;
Slot* slots;
timespec started;

void call_kernel() { entry->call(slots); }

void open_job(const char* file) {
  job_file = atoi(file);
  struct stat about;
  if (fstat(job_file, &about)) _exit(2);
  void* data =
      mmap(nullptr, size_t(about.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, job_file, 0);
  if (data == MAP_FAILED) _exit(2);
  job = static_cast<Job*>(data);
  if (job->magic != job_magic) _exit(2);
}

void take_launch() {
  launch.grid = {job->grid[0], job->grid[1], job->grid[2]};
  launch.block = {job->block[0], job->block[1], job->block[2]};
  launch.warp_size = job->warp_size;
  launch.dynamic_shared = job->dynamic_shared;
  launch.threads = launch.block.x * launch.block.y * launch.block.z;
  launch.races = job->flags & job_races;
  launch.delayed = job->flags & job_delay;
  launch.banks = job->flags & job_banks;
  launch.arithmetic = job->flags >> job_arithmetic & 0xff;
  if (launch.threads == 0 || launch.threads > max_threads)
    fail("bad-argument", 0, "a block of %u threads; 1 to %u are possible", launch.threads,
         max_threads);
  if (job->entry >= tg_entry_count) fail("bad-argument", 0, "there is no such entry");
}

void take_arguments() {
  entry = &tg_entries[job->entry];
  if (entry->parameters != job->arguments)
    fail("bad-argument", 0, "%s takes %u arguments and is given %u", entry->name, entry->parameters,
         job->arguments);
  make_buffers();
  const JobArgument* about = reinterpret_cast<const JobArgument*>(job + 1);
  slots = static_cast<Slot*>(calloc(job->arguments + 1, sizeof(Slot)));
  uint32_t buffer = 0;
  for (uint32_t i = 0; i < job->arguments; i++) {
    slots[i].about = &about[i];
    if (about[i].kind == arg_buffer)
      slots[i].pointer = about[i].alias ? slots[about[i].alias - 1].pointer : buffers[buffer++].pointer;
    else if (about[i].kind == arg_bytes)
      slots[i].pointer = reinterpret_cast<uint8_t*>(job) + about[i].data;
  }
}

void run_grid() {
  uint64_t blocks = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
  for (uint64_t i = 0; i < blocks; i++) {
    uint64_t at = job->order == 1 ? blocks - 1 - i : i;
    Dim3 index = {unsigned(at % launch.grid.x), unsigned(at / launch.grid.x % launch.grid.y),
                  unsigned(at / launch.grid.x / launch.grid.y)};
    reset_barriers();
    reset_async();
    poison_shared();
    if (launch.races) races_begin_block();
    for (uint32_t h = 0; h < hooks; h++)
      if (block_begins[h]) block_begins[h]();
    run_block(index, call_kernel);
    for (uint32_t h = 0; h < hooks; h++)
      if (block_ends[h]) block_ends[h]();
    accesses_of_block();
  }
}

}  // namespace

double launch_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec - started.tv_sec) + 1e-9 * double(now.tv_nsec - started.tv_nsec);
}

void on_block(void (*begin)(), void (*end)()) {
  if (hooks == most_hooks) fail("crash", 0, "more than %u hooks", most_hooks);
  block_begins[hooks] = begin;
  block_ends[hooks++] = end;
}

}  // namespace tg

int main(int count, char** words) {
  using namespace tg;
  if (count != 2) return 2;
  open_job(words[1]);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &started);
  take_launch();
  find_shared_memory();
  take_arguments();
  make_threads();
  if (launch.races) races_begin_launch();
  watch_signals();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &started);
  run_grid();
  check_canaries();
  if (launch.races) check_written();
  finish();
}
