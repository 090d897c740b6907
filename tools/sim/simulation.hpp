// A random run from a seed to a verdict: application, disturbances, oracles and the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/sim/completion_oracle.hpp"
#include "tools/sim/scenario.hpp"
#include "tools/sim/tamper.hpp"
#include "tools/sim/transcript.hpp"
#include "tools/sim/wire_oracle.hpp"
#include "tools/sim/workload.hpp"
#include "tools/sim/world.hpp"

namespace uroce::sim {

struct Report {
  std::vector<std::string> violations;  // empty: the run is as it must be
  uint64_t transcript_hash = 0;
  uint64_t frames = 0;
  uint64_t operations = 0;
  uint64_t completions = 0;
  uint64_t failures = 0;  // completions in error, flushes not counted
  int64_t virtual_ns = 0;

  bool ok() const { return violations.empty(); }
};

class Simulation final : private Observer {
 public:
  // `tamper` and `writer` may be null.
  explicit Simulation(const Scenario& scenario, const Tamper* tamper = nullptr,
                      Transcript::Writer writer = nullptr);
  Report run();

 private:
  // Limits that no run of a sound transport comes near.
  static constexpr uint64_t kMaxFrames = 400'000;
  static constexpr int64_t kMaxVirtualNs = 2'000'000'000'000;
  static constexpr uint32_t kCheckMemoryEvery = 512;  // events
  static constexpr uint32_t kMaxDrainChecks = 50;

  // Observer
  void on_transmit(Host& host, const transport::OutgoingPacket& packet,
                   const transport::PacketView& view) override;
  void on_receive(Host& host, const transport::PacketView& packet) override;
  void on_completion_event(Host& host, transport::CompletionQueue& cq) override;
  void on_async_event(Host& host, transport::AsyncEventType type, void* subject) override;
  void after_progress(Host& host) override;

  void start();
  void run_until_idle();
  void act(Connection& connection, Endpoint& end);
  void plan_act(Connection& connection, Endpoint& end, int64_t delay_ns);
  void post_receives(Connection& connection, Endpoint& end);
  void plan_poll(CqState& state, int64_t delay_ns);
  void poll(CqState& state);
  void dispatch(CqState& state, const transport::Completion& completion);
  void arm(CqState& state);

  void plan_disturbance(Connection& connection);
  void disturb(Connection& connection);
  void plan_tear_down(Connection& connection, int64_t delay_ns);
  void tear_down(Connection& connection);
  void check_drained(Connection& connection);
  void close(Connection& connection);
  void judge_the_end();
  void release_everything();

  bool survival_only() const { return world_.scenario.link.deliver_corrupt; }
  Connection& connection_of(const Endpoint& end) { return world_.connections[end.id / 2]; }
  int64_t drain_ns() const;

  World world_;
  // Where oracles report that cannot judge a run whose packets are damaged on purpose.
  Verdict ignored_;
  Workload workload_;
  WireOracle wire_oracle_;
  CompletionOracle completion_oracle_;
  const Tamper* tamper_;
  Report report_;
};

// The scenario of the options, run without tamper; `writer` may be null.
Report simulate(const ScenarioOptions& options, Transcript::Writer writer = nullptr);
// The command that replays it: "uroce sim --seed 17 --loss 1000".
std::string replay_command(const ScenarioOptions& options);

}  // namespace uroce::sim
