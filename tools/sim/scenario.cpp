// Draws a scenario from its seed.
#include "tools/sim/scenario.hpp"

#include <algorithm>

#include "tools/sim/random.hpp"

namespace uroce::sim {
namespace {

constexpr int64_t kMicrosecond = 1'000;
constexpr int64_t kMillisecond = 1'000'000;

template <typename T, size_t N>
T pick(Random& random, const T (&choices)[N]) {
  return choices[random.below(N)];
}

LinkProfile draw_link(Random& random, const ScenarioOptions& options) {
  LinkProfile link;
  link.delay_ns = static_cast<int64_t>(random.between(200, 20 * kMicrosecond));
  link.ns_per_frame = static_cast<int64_t>(random.between(10, 400));
  link.reorder_ns = static_cast<int64_t>(random.between(1'000, 40 * kMicrosecond));
  if (random.coin()) link.jitter_ns = static_cast<int64_t>(random.below(5 * kMicrosecond));
  if (random.chance(40 * kPercent)) link.capacity = static_cast<uint32_t>(random.between(1, 64));
  if (!options.perfect_link) {
    if (random.chance(70 * kPercent)) link.loss = static_cast<uint32_t>(random.below(8 * kPercent));
    if (random.coin()) link.duplication = static_cast<uint32_t>(random.below(8 * kPercent));
    if (random.coin()) link.reordering = static_cast<uint32_t>(random.below(8 * kPercent));
    if (random.chance(30 * kPercent)) {
      link.corruption = static_cast<uint32_t>(random.below(4 * kPercent));
    }
    if (random.chance(30 * kPercent)) {
      link.ecn_marking = static_cast<uint32_t>(random.below(20 * kPercent));
    }
  }
  if (options.loss) link.loss = *options.loss;
  if (options.deliver_corrupt) {
    link.deliver_corrupt = true;
    link.corruption = static_cast<uint32_t>(random.between(1, 20 * kPercent));
  }
  return link;
}

HostPlan draw_host(Random& random) {
  HostPlan host;
  host.pace.turn_gap_ns = static_cast<int64_t>(random.between(50, 2'000));
  host.pace.turn_jitter_ns = random.coin() ? static_cast<int64_t>(random.below(3'000)) : 0;
  host.pace.receive_burst = pick(random, {1u, 4u, 32u});
  host.pace.transmit_budget = pick(random, {1u, 5u, 32u});
  host.poll_delay_ns = static_cast<int64_t>(random.between(1, 20 * kMicrosecond));
  host.cqs.resize(random.between(1, 3));
  for (CqMode& mode : host.cqs) {
    mode = random.chance(70 * kPercent)   ? CqMode::kPolled
           : random.chance(70 * kPercent) ? CqMode::kEvents
                                          : CqMode::kSolicitedEvents;
  }
  return host;
}

EndpointPlan draw_endpoint(Random& random, const ScenarioOptions& options) {
  EndpointPlan end;
  end.capabilities.max_send_wr = static_cast<uint32_t>(random.between(1, 64));
  end.capabilities.max_recv_wr = static_cast<uint32_t>(random.between(1, 64));
  end.capabilities.max_send_sge = pick(random, {1u, 2u, 4u, 30u});
  end.capabilities.max_recv_sge = pick(random, {1u, 2u, 4u, 30u});
  end.capabilities.max_inline_data = pick(random, {0u, 16u, 64u, 220u, 512u});
  end.signal_all = random.chance(20 * kPercent);
  end.max_rd_atomic = pick<uint8_t>(random, {1, 2, 4, 16});
  // Codes of IBTA table 45: 0.01 ms to 1.28 ms, rarely 655.36 ms.
  end.min_rnr_timer = static_cast<uint8_t>(random.chance(3 * kPercent) ? 0 : random.between(1, 15));
  end.ack_timeout = static_cast<uint8_t>(random.between(7, 12));  // 0.5 ms to 17 ms
  end.retry_count = static_cast<uint8_t>(random.chance(70 * kPercent) ? 7 : random.between(0, 6));
  end.rnr_retry = static_cast<uint8_t>(random.chance(70 * kPercent) ? 7 : random.between(0, 6));
  end.operations = static_cast<uint32_t>(random.between(0, 60));
  if (options.operations) end.operations = *options.operations;
  end.late_receives = pick(random, {0u, 5 * kPercent, 50 * kPercent});
  end.late_by_ns = static_cast<int64_t>(random.between(1, 3 * kMillisecond));
  end.think_ns = static_cast<int64_t>(random.between(1, 50 * kMicrosecond));
  return end;
}

void draw_trouble(Random& random, ConnectionPlan& connection) {
  EndpointPlan& end = connection.ends[random.below(2)];
  if (random.coin()) {
    end.fault =
        static_cast<Fault>(random.between(1, static_cast<uint64_t>(Fault::kBadReceiveLkey)));
    end.fault_at = static_cast<uint32_t>(random.below(std::max(1u, end.operations)));
    if (end.fault == Fault::kShortReceive || end.fault == Fault::kBadReceiveLkey) end.fault_at /= 4;
  } else {
    connection.disturbance =
        static_cast<Disturbance>(random.between(1, static_cast<uint64_t>(Disturbance::kReset)));
    connection.disturbed_end = static_cast<uint8_t>(random.below(2));
    connection.disturbed_at_ns = static_cast<int64_t>(random.below(kMillisecond));
  }
  connection.reconnect = random.chance(60 * kPercent);
}

ConnectionPlan draw_connection(Random& random, const ScenarioOptions& options) {
  ConnectionPlan connection;
  connection.mtu = pick(random, {Mtu::k256, Mtu::k512, Mtu::k1024, Mtu::k2048, Mtu::k4096});
  if (options.mtu) connection.mtu = *options.mtu;
  connection.max_length =
      bytes_of(connection.mtu) * static_cast<uint32_t>(random.between(1, 9)) + 3;
  for (EndpointPlan& end : connection.ends) end = draw_endpoint(random, options);
  if (!options.no_trouble && random.chance(40 * kPercent)) draw_trouble(random, connection);
  return connection;
}

}  // namespace

Scenario scenario_of(const ScenarioOptions& options) {
  Random random(options.seed);
  // One stream a part: an option that replaces one draw leaves the other parts alone.
  Random link_random = random.split(), host_random = random.split();
  Scenario scenario;
  scenario.seed = options.seed;
  scenario.link = draw_link(link_random, options);
  for (HostPlan& host : scenario.hosts) host = draw_host(host_random);
  scenario.connections.resize(
      options.connections.value_or(static_cast<uint32_t>(random.between(1, 4))));
  for (ConnectionPlan& connection : scenario.connections) {
    Random connection_random = random.split();
    connection = draw_connection(connection_random, options);
  }
  return scenario;
}

std::string_view name_of(Fault fault) {
  static constexpr std::string_view kNames[] = {
      "none",      "bad R_Key", "out of bounds", "no permission",    "foreign domain",
      "unaligned", "bad L_Key", "short receive", "bad receive L_Key"};
  return kNames[static_cast<size_t>(fault)];
}

std::string_view name_of(Disturbance disturbance) {
  static constexpr std::string_view kNames[] = {"none", "blackhole", "modify to ERROR", "destroy",
                                                "reset"};
  return kNames[static_cast<size_t>(disturbance)];
}

}  // namespace uroce::sim
