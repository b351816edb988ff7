// What kernels use of it is there from the start: tg_cuda.hpp is included before the text.
#pragma once
