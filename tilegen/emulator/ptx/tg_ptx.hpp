// What translated inline PTX calls: the semantics of PTX instructions, written from the PTX ISA.
#pragma once
#include "async.hpp"
#include "bulk.hpp"
#include "compare.hpp"
#include "convert.hpp"
#include "floating.hpp"
#include "integer.hpp"
#include "matrix.hpp"
#include "memory.hpp"
#include "types.hpp"
#include "warp.hpp"
#include "wgmma.hpp"
