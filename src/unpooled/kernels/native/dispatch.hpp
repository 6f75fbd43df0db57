// Which table of kernels this machine runs: asked once, by bindings.cpp. Compiled for the plain instruction set, since
// it runs before the choice.
#pragma once
#include "table.hpp"

namespace unpooled {

// The kernels for the widest instruction set of this machine or, if `name` is not empty, for that one; null if
// the machine or this build has no such set.
const Table* choose(const char* name);

}  // namespace unpooled
