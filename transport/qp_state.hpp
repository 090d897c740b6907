// The queue pair's states: which transitions exist, and which attributes each takes (IBTA 10.3.1,
// table 91), as one table.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/result.hpp"
#include "transport/verbs.hpp"

namespace uroce::transport {

// "RTR" for kRtr, as in the texts of refusals.
std::string_view name_of(QpState state);

// What the device grants to one modify.
struct QpModifyLimits {
  Mtu active_mtu = Mtu::k4096;
  uint32_t max_rd_atomic = 16;
};

// The state in which a modify leaves the queue pair.
constexpr QpState state_after(QpState current, const QpAttributes& attributes,
                              QpAttributeMask mask) {
  return (mask & kQpState) != 0 ? attributes.state : current;
}

// Judges ibv_modify_qp. All refusals are EINVAL but EOPNOTSUPP for an alternate path; `why` names
// every attribute that is missing, or not allowed, or the value that is out of range. Without
// kQpState the transition is from the current state to itself.
Status check_modify(QpType type, QpState current, const QpAttributes& attributes,
                    QpAttributeMask mask, const QpModifyLimits& limits);

}  // namespace uroce::transport
