// What a permitted modify_qp does to an RC queue pair.
#pragma once

#include "transport/engine.hpp"

namespace uroce::transport {

// The attributes have passed check_modify.
void apply_modify(Engine& engine, RcQueuePair& qp, const QpAttributes& attributes,
                  QpAttributeMask mask);

// Takes the queue pair off timers and service queues and forgets its completions (destroy, RESET).
void quiesce(Engine& engine, RcQueuePair& qp);

}  // namespace uroce::transport
