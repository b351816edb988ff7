// The emulator's cuda_pipeline.h: the primitives interface, section "Pipeline Primitives Interface" of
// the CUDA C++ Programming Guide.
#pragma once

TG_DEVICE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0,
                                       TG_LINE) {
  tg::async_copy(tg::shared_address(to, line), from, uint32_t(bytes), uint32_t(bytes - zeros), line);
}
TG_DEVICE void __pipeline_commit() { tg::async_commit_group(); }
TG_DEVICE void __pipeline_wait_prior(size_t n) { tg::async_wait_group(uint32_t(n)); }
