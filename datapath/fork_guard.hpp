// Tells a forked child from the process that opened a device: one load, never a system call.
#pragma once

#include <cstdint>

namespace uroce::datapath {

class ForkGuard {
 public:
  // `in_child` runs in every forked child, before fork returns there. Call once per process.
  static void install(void (*before_fork)(), void (*in_parent)(), void (*in_child)());

  // The present process's number, never 0: 1 in the first, one more in each forked generation.
  static uint32_t epoch();
  // False in a process forked after `epoch` was read.
  static bool is_current(uint32_t epoch);
};

}  // namespace uroce::datapath
