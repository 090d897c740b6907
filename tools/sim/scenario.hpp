// What a random run is made of: everything that a seed decides before the first event.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/sim/host.hpp"
#include "tools/sim/link.hpp"
#include "transport/verbs.hpp"

namespace uroce::sim {

// One operation or receive of a connection that must fail, and how.
enum class Fault : uint8_t {
  kNone,
  kBadRkey,         // a key that was never given
  kOutOfBounds,     // the last byte lies behind the region
  kNoPermission,    // the region lacks the right
  kForeignDomain,   // the region is of another protection domain
  kUnaligned,       // an ATOMIC not at a multiple of 8
  kBadLkey,         // the requester's own memory
  kShortReceive,    // the receive buffer is too small
  kBadReceiveLkey,  // the receive buffer's key is wrong
};
std::string_view name_of(Fault fault);

// What is done to a whole connection in the middle of its traffic.
enum class Disturbance : uint8_t {
  kNone,
  kBlackhole,    // the link swallows one direction from then on
  kModifyError,  // the application moves one end to ERROR
  kDestroy,      // the application destroys one end
  kReset,        // the application moves both ends to RESET
};
std::string_view name_of(Disturbance disturbance);

struct EndpointPlan {
  transport::QpCapabilities capabilities;
  bool signal_all = false;
  uint8_t max_rd_atomic = 1;
  uint8_t min_rnr_timer = 1;
  uint8_t ack_timeout = 8;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint32_t operations = 0;  // to post on this end
  Fault fault = Fault::kNone;
  uint32_t fault_at = 0;       // index of the operation, for receive faults of the receive
  uint32_t late_receives = 0;  // chance per million that receives are posted late
  int64_t late_by_ns = 0;
  int64_t think_ns = 0;  // between two of the application's actions, at most
};

struct ConnectionPlan {
  Mtu mtu = Mtu::k1024;
  uint32_t max_length = 0;  // bytes of the longest message
  std::array<EndpointPlan, 2> ends;
  Disturbance disturbance = Disturbance::kNone;
  uint8_t disturbed_end = 0;
  int64_t disturbed_at_ns = 0;
  bool reconnect = false;  // after the first connection has failed
};

// How the application learns of completions.
enum class CqMode : uint8_t { kPolled, kEvents, kSolicitedEvents };

struct HostPlan {
  HostPace pace;
  std::vector<CqMode> cqs;
  int64_t poll_delay_ns = 0;  // the application looks up to this much after a completion
};

struct Scenario {
  uint64_t seed = 0;
  LinkProfile link;
  std::array<HostPlan, 2> hosts;
  std::vector<ConnectionPlan> connections;
};

// Choices that take the seed's place.
struct ScenarioOptions {
  uint64_t seed = 0;
  std::optional<uint32_t> connections;
  std::optional<uint32_t> operations;  // per end
  std::optional<uint32_t> loss;        // per million
  std::optional<Mtu> mtu;
  bool perfect_link = false;     // no impairment at all
  bool no_trouble = false;       // no faults and no disturbances
  bool deliver_corrupt = false;  // corrupted packets reach the parser: only survival is checked
};

Scenario scenario_of(const ScenarioOptions& options);

}  // namespace uroce::sim
