// Drives a random run: the application's actions, completions and the wiring of the oracles.
#include "tools/sim/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace uroce::sim {

using transport::Completion;
using transport::CompletionStatus;

Simulation::Simulation(const Scenario& scenario, const Tamper* tamper, Transcript::Writer writer)
    : world_(scenario, *this, tamper, std::move(writer)),
      workload_(world_),
      wire_oracle_(survival_only() ? ignored_ : world_.verdict),
      completion_oracle_(survival_only() ? ignored_ : world_.verdict),
      tamper_(tamper) {}

Report Simulation::run() {
  start();
  run_until_idle();
  // A connection that is taken down may come back once.
  for (int round = 0; round < 2; ++round) {
    for (Connection& connection : world_.connections) {
      if (!connection.closed) plan_tear_down(connection, 0);
    }
    run_until_idle();
  }
  if (world_.verdict.ok()) judge_the_end();
  if (world_.verdict.ok()) release_everything();
  report_.violations = world_.verdict.violations();
  report_.transcript_hash = world_.transcript.hash();
  report_.frames = world_.link->frames_sent();
  report_.virtual_ns = world_.clock.now().ns;
  return report_;
}

void Simulation::start() {
  for (Connection& connection : world_.connections) {
    world_.connect(connection);
    for (Endpoint& end : connection.ends) plan_act(connection, end, 0);
    plan_disturbance(connection);
  }
  for (auto& cqs : world_.cqs) {
    for (CqState& state : cqs) {
      if (state.mode != CqMode::kPolled) arm(state);
    }
  }
}

void Simulation::run_until_idle() {
  uint64_t events = 0;
  while (world_.verdict.ok() && world_.clock.step()) {
    if (++events % kCheckMemoryEvery == 0 && !survival_only()) {
      for (size_t i = 0; i < 2; ++i) {
        if (const auto why = world_.memories[i]->check_all()) {
          world_.verdict.violate(fmt::format("memory of host {}: {}", i, *why));
        }
      }
    }
    if (world_.link->frames_sent() > kMaxFrames)
      world_.verdict.violate("too many frames: livelock");
    if (world_.clock.now().ns > kMaxVirtualNs) world_.verdict.violate("the run does not end");
  }
}

// Observer

void Simulation::on_transmit(Host& host, const transport::OutgoingPacket& packet,
                             const transport::PacketView& view) {
  Endpoint* from = world_.find(host, packet.source_qpn);
  if (from == nullptr || from->qp == nullptr) {
    world_.verdict.violate(fmt::format("host {}: a packet of queue pair {:#x}, which is none",
                                       host.index(), packet.source_qpn.value));
    return;
  }
  if (packet.destination_qpn != view.bth.destination_qpn || packet.path != host.path()) {
    world_.verdict.violate(
        fmt::format("{}: destination or path of a packet is wrong", name_of(*from)));
  }
  wire_oracle_.on_transmit(*from, view, world_.clock.now());
}

void Simulation::on_receive(Host& host, const transport::PacketView& packet) {
  Endpoint* to = world_.find(host, packet.bth.destination_qpn);
  // One in ERROR hears nothing any more.
  if (to == nullptr || to->forgotten || to->qp->state() == transport::QpState::kError) return;
  wire_oracle_.on_arrival(*to, packet, world_.clock.now());
}

void Simulation::on_completion_event(Host& host, transport::CompletionQueue& cq) {
  auto& state = *static_cast<CqState*>(cq.owner());
  if (!std::exchange(state.armed, false)) {
    world_.verdict.violate(
        fmt::format("host {}: an event of a completion queue that is not armed", host.index()));
  }
  world_.note(fmt::format("host {} completion event", host.index()));
  plan_poll(state, 1);
}

void Simulation::on_async_event(Host& host, transport::AsyncEventType type, void* subject) {
  world_.note(fmt::format("host {} asynchronous event {}", host.index(), static_cast<int>(type)));
  if (survival_only()) return;
  using enum transport::AsyncEventType;
  if (type == kCommunicationEstablished) return;
  if (type == kQpAccessError || type == kQpRequestError || type == kQpFatal) {
    const auto& end = *static_cast<const Endpoint*>(subject);
    const auto& requests = end.peer->flow.operations;
    if (std::any_of(requests.begin(), requests.end(),
                    [](const Operation& op) { return is_responder_fault(op.fault); })) {
      return;
    }
  }
  world_.verdict.violate(fmt::format("host {}: nothing explains asynchronous event {}",
                                     host.index(), static_cast<int>(type)));
}

void Simulation::after_progress(Host& host) {
  if (tamper_ != nullptr && tamper_->after_progress) {
    tamper_->after_progress(*world_.memories[host.index()]);
  }
  for (CqState& state : world_.cqs[host.index()]) {
    if (state.cq->empty()) continue;
    const int64_t delay = static_cast<int64_t>(
        world_.random.below(world_.scenario.hosts[host.index()].poll_delay_ns));
    if (state.mode == CqMode::kPolled) {
      plan_poll(state, delay);
    } else if (state.mode == CqMode::kSolicitedEvents) {
      plan_poll(state, 20 * delay);  // what fires no event must be found all the same
    } else if (state.armed && state.empty_when_armed) {
      world_.verdict.violate(fmt::format(
          "host {}: a completion came into an armed queue and fired no event", host.index()));
    }
  }
}

// The application

void Simulation::plan_act(Connection& connection, Endpoint& end, int64_t delay_ns) {
  if (std::exchange(end.act_planned, true)) return;
  world_.clock.schedule_in(delay_ns, [this, &connection, &end] {
    end.act_planned = false;
    act(connection, end);
  });
}

void Simulation::act(Connection& connection, Endpoint& end) {
  if (!end.connected || connection.tearing_down) return;
  post_receives(connection, end);
  const uint32_t budget = end.plan->operations * (end.incarnation + 1);
  for (uint64_t burst = end.random.between(1, 6); burst > 0; --burst) {
    if (end.operations_posted >= budget) return;
    const bool full = end.flow.operations.size() - end.flow.completed >= end.granted.max_send_wr;
    // A full queue refuses, which is worth a try now and then.
    if (full && !end.random.chance(kMillion / 20)) return;  // the next completion comes back here
    if (!workload_.post_operation(end, end.operations_posted + 1 == budget)) {
      // Without buffers or slots; completions bring both, unless all that is posted is unsignaled.
      plan_act(connection, end, 100'000);
      return;
    }
    ++report_.operations;
    Endpoint& peer = *end.peer;
    if (end.flow.consumers.size() > peer.receives.size()) {
      const bool late = peer.random.chance(peer.plan->late_receives);
      plan_act(connection, peer,
               late ? static_cast<int64_t>(peer.random.below(peer.plan->late_by_ns)) : 0);
    }
  }
  plan_act(connection, end, static_cast<int64_t>(end.random.below(end.plan->think_ns)));
}

void Simulation::post_receives(Connection& connection, Endpoint& end) {
  const size_t wanted = end.peer->flow.consumers.size() + end.random.below(4);
  while (end.receives.size() < wanted) {
    if (end.receives.size() - end.receives_completed >= end.granted.max_recv_wr) return;
    if (!workload_.post_receive(end)) {
      plan_act(connection, end, 100'000);
      return;
    }
  }
}

void Simulation::plan_poll(CqState& state, int64_t delay_ns) {
  if (std::exchange(state.poll_planned, true)) return;
  world_.clock.schedule_in(delay_ns, [this, &state] {
    state.poll_planned = false;
    poll(state);
  });
}

void Simulation::poll(CqState& state) {
  std::array<Completion, 16> buffer;
  const size_t asked = world_.random.between(1, buffer.size());
  const size_t found = state.cq->poll(std::span(buffer).first(asked));
  std::vector<Completion> completions(buffer.begin(), buffer.begin() + static_cast<long>(found));
  if (tamper_ != nullptr && tamper_->on_poll) tamper_->on_poll(completions);
  for (const Completion& completion : completions) {
    if (world_.verdict.ok()) dispatch(state, completion);
  }
  if (!state.cq->empty()) {
    plan_poll(state, 1 + static_cast<int64_t>(world_.random.below(500)));
    if (state.mode == CqMode::kPolled || state.armed || world_.random.coin()) return;
  }
  if (state.mode != CqMode::kPolled && !state.armed) arm(state);
}

void Simulation::arm(CqState& state) {
  const bool found_some = !state.cq->empty();
  state.armed = true;
  state.empty_when_armed = !found_some;
  state.cq->arm(state.mode == CqMode::kSolicitedEvents);
  if (!state.armed) {
    world_.verdict.violate("arming fired for a completion that lay in the queue before");
  }
  // What came before it was armed is looked for once more (IBTA 11.4.2.2).
  if (found_some) plan_poll(state, 1);
}

void Simulation::dispatch(CqState& state, const Completion& completion) {
  ++report_.completions;
  world_.note(fmt::format("host {} {}", state.host->index(), describe(completion)));
  Endpoint* end = world_.find(*state.host, completion.qpn);
  if (end == nullptr) {
    world_.verdict.violate(fmt::format("{}: no such queue pair", describe(completion)));
    return;
  }
  const bool success = completion.status == CompletionStatus::kSuccess;
  const bool receive = completion.wr_id >> 63 != 0;
  if (receive) {
    bool fires = !success;
    if (end->receives_completed < end->receives.size()) {
      const Operation* message = end->receives[end->receives_completed].message;
      fires |= message != nullptr && (message->flags & transport::kSolicited) != 0;
    }
    if (fires && state.armed && state.empty_when_armed && !survival_only()) {
      world_.verdict.violate(
          fmt::format("{}: solicited or failed, and fired no event", describe(completion)));
    }
    completion_oracle_.on_receive_completion(*end, completion);
  } else {
    completion_oracle_.on_send_completion(*end, completion, world_.words[end->peer->host->index()]);
  }
  Connection& connection = connection_of(*end);
  if (!success) {
    report_.failures += completion.status != CompletionStatus::kWrFlushError;
    plan_tear_down(connection, static_cast<int64_t>(world_.random.below(200'000)));
  }
  plan_act(connection, *end, static_cast<int64_t>(end->random.below(1'000)));
}

Report simulate(const ScenarioOptions& options, Transcript::Writer writer) {
  Simulation simulation(scenario_of(options), nullptr, std::move(writer));
  return simulation.run();
}

std::string replay_command(const ScenarioOptions& options) {
  std::string command = fmt::format("uroce sim --seed {}", options.seed);
  if (options.connections) command += fmt::format(" --connections {}", *options.connections);
  if (options.operations) command += fmt::format(" --operations {}", *options.operations);
  if (options.loss) command += fmt::format(" --loss {}", *options.loss);
  if (options.mtu) command += fmt::format(" --mtu {}", bytes_of(*options.mtu));
  if (options.perfect_link) command += " --perfect-link";
  if (options.no_trouble) command += " --no-trouble";
  if (options.deliver_corrupt) command += " --deliver-corrupt";
  return command;
}

}  // namespace uroce::sim
