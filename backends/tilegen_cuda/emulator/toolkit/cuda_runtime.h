// Its names are there from the start: tg_cuda.hpp is included before the text.
#pragma once
