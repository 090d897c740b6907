// Faults planted on purpose at the simulation's own borders, to prove that its oracles fire.
#pragma once

#include <functional>
#include <vector>

#include "tools/sim/link.hpp"
#include "tools/sim/memory.hpp"
#include "transport/verbs.hpp"

namespace uroce::sim {

// Each member may be empty. Nothing in the product knows of it.
struct Tamper {
  std::function<void(Frame&)> before_oracle;  // as if the sender had built the packet wrongly
  std::function<void(Frame&)> on_wire;        // as if the link had changed it, undetected
  // As if the completion queue had returned something else.
  std::function<void(std::vector<transport::Completion>&)> on_poll;
  std::function<void(Memory&)> after_progress;  // as if the Hca had written elsewhere
};

}  // namespace uroce::sim
