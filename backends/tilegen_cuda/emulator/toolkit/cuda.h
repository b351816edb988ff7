// Its names are there from the start: tg_cuda.hpp is included before the text. What only kernels with
// this header know is below.
#pragma once

struct alignas(64) CUtensorMap {
  unsigned long long opaque[16];
};
