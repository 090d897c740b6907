// Disturbs connections in mid-traffic, takes them down, judges what is left and makes them anew.
#include <fmt/format.h>

#include <cstring>

#include "tools/sim/simulation.hpp"

namespace uroce::sim {

using transport::QpState;

int64_t Simulation::drain_ns() const {
  const LinkProfile& link = world_.scenario.link;
  return 2 * (link.delay_ns + link.jitter_ns + link.reorder_ns) + 1'000'000;
}

void Simulation::plan_disturbance(Connection& connection) {
  if (connection.plan->disturbance == Disturbance::kNone) return;
  world_.clock.schedule_in(connection.plan->disturbed_at_ns,
                           [this, &connection] { disturb(connection); });
}

void Simulation::disturb(Connection& connection) {
  if (connection.tearing_down || connection.closed) return;
  Endpoint& end = connection.ends[connection.plan->disturbed_end];
  transport::Hca& hca = end.host->hca();
  world_.note(fmt::format("{}: {}", name_of(end), name_of(connection.plan->disturbance)));
  const auto modify = [&](Endpoint& modified, QpState state) {
    transport::QpAttributes attributes;
    attributes.state = state;
    const auto done = modified.host->hca().modify_qp(*modified.qp, attributes, transport::kQpState,
                                                     world_.clock.now());
    if (!done.ok()) world_.verdict.violate(done.refusal().why);
    modified.host->ring(*modified.qp);
  };
  switch (connection.plan->disturbance) {
    case Disturbance::kNone:
      break;
    case Disturbance::kBlackhole:
      world_.link->open_blackhole(end.qpn);
      break;
    case Disturbance::kModifyError:
      end.moved_to_error = true;
      modify(end, QpState::kError);
      break;
    case Disturbance::kDestroy: {
      const auto done = hca.destroy_qp(*end.qp, world_.clock.now());
      if (!done.ok()) world_.verdict.violate(done.refusal().why);
      end.qp = nullptr;
      end.connected = false;
      end.forgotten = true;
      break;
    }
    case Disturbance::kReset:
      for (Endpoint& both : connection.ends) {
        both.connected = false;
        both.forgotten = true;
        modify(both, QpState::kReset);
      }
      break;
  }
  // Some time for the other end to find out by itself.
  plan_tear_down(connection, static_cast<int64_t>(world_.random.below(300'000'000)));
}

void Simulation::plan_tear_down(Connection& connection, int64_t delay_ns) {
  if (connection.tearing_down || connection.closed) return;
  world_.clock.schedule_in(delay_ns,
                           [this, &connection, incarnation = connection.ends[0].incarnation] {
                             if (connection.tearing_down || connection.closed) return;
                             if (connection.ends[0].incarnation != incarnation) return;
                             tear_down(connection);
                           });
}

void Simulation::tear_down(Connection& connection) {
  connection.tearing_down = true;
  for (Endpoint& end : connection.ends) {
    end.connected = false;
    if (end.forgotten) continue;
    world_.note(fmt::format("{}: torn down", name_of(end)));
    if (end.qp->state() != QpState::kError) end.moved_to_error = true;
    transport::QpAttributes attributes;
    attributes.state = QpState::kError;
    const auto done =
        end.host->hca().modify_qp(*end.qp, attributes, transport::kQpState, world_.clock.now());
    if (!done.ok()) world_.verdict.violate(done.refusal().why);
    end.host->ring(*end.qp);
    // ERROR accepts work and flushes it.
    const auto room = [](size_t posted, size_t completed, uint32_t most) {
      return posted - completed < most;
    };
    if (room(end.flow.operations.size(), end.flow.completed, end.granted.max_send_wr) &&
        end.random.coin()) {
      workload_.post_operation(end, true);
    }
    if (room(end.receives.size(), end.receives_completed, end.granted.max_recv_wr) &&
        end.random.coin()) {
      workload_.post_receive(end);
    }
  }
  world_.clock.schedule_in(drain_ns(), [this, &connection] { check_drained(connection); });
}

void Simulation::check_drained(Connection& connection) {
  bool drained = true;
  for (const Endpoint& end : connection.ends) {
    drained &= end.forgotten || (end.flow.completed == end.flow.operations.size() &&
                                 end.receives_completed == end.receives.size());
  }
  if (!drained && ++connection.drain_checks < kMaxDrainChecks) {
    world_.clock.schedule_in(drain_ns(), [this, &connection] { check_drained(connection); });
    return;
  }
  close(connection);
}

void Simulation::close(Connection& connection) {
  Verdict& verdict = survival_only() ? ignored_ : world_.verdict;
  for (Endpoint& end : connection.ends) completion_oracle_.judge_end(end);
  for (Endpoint& end : connection.ends) {
    world_.link->close_blackhole(end.qpn);
    // Those ATOMICs may have been executed before the connection broke.
    for (const Operation& operation : end.flow.operations) {
      if (!operation.is_atomic() || operation.succeeded || is_responder_fault(operation.fault)) {
        continue;
      }
      AtomicLedger::Entry entry;
      entry.requester = end.id << 8 | end.incarnation;
      entry.is_swap = operation.opcode == transport::SendOpcode::kAtomicCmpAndSwp;
      entry.compare_add = operation.compare_add;
      entry.swap = operation.swap;
      world_.words[end.peer->host->index()][operation.word].add(entry);
    }
    settle(end, verdict);
  }
  if (connection.plan->reconnect && connection.ends[0].incarnation == 0) {
    for (Endpoint& end : connection.ends) ++end.incarnation;
    world_.connect(connection);
    for (Endpoint& end : connection.ends) plan_act(connection, end, 0);
  } else {
    connection.closed = true;
    for (Endpoint& end : connection.ends) end.forgotten = true;
  }
}

void Simulation::judge_the_end() {
  for (size_t i = 0; i < 2; ++i) {
    transport::Hca& hca = world_.hosts[i]->hca();
    if (hca.next_deadline() != Instant::never()) {
      world_.verdict.violate(fmt::format("host {}: a deadline is left when all is over", i));
    }
    if (hca.transmit_pending()) {
      world_.verdict.violate(fmt::format("host {}: packets are left when all is over", i));
    }
    if (survival_only()) {
      for (const World::Gap& gap : world_.gaps[i]) {
        if (const auto why = world_.memories[i]->check(gap.offset, gap.length)) {
          world_.verdict.violate(fmt::format("memory of host {} outside all regions: {}", i, *why));
        }
      }
      continue;
    }
    if (const auto why = world_.memories[i]->check_all()) {
      world_.verdict.violate(fmt::format("memory of host {}: {}", i, *why));
    }
    for (size_t word = 0; word < kSharedWords; ++word) {
      uint64_t value = 0;
      const auto bytes = world_.memories[i]->real(world_.words_windows[i].offset + word * 8, 8);
      std::memcpy(&value, bytes.data(), sizeof value);
      if (const auto why = world_.words[i][word].check(value)) {
        world_.verdict.violate(fmt::format("shared word {} of host {}: {}", word, i, *why));
      }
    }
  }
}

// What is in use cannot be destroyed, and then everything can.
void Simulation::release_everything() {
  for (Connection& connection : world_.connections) {
    for (Endpoint& end : connection.ends) {
      if (end.qp == nullptr) continue;
      transport::Hca& hca = end.host->hca();
      if (hca.destroy_cq(*end.qp->init_attributes().send_cq).ok()) {
        world_.verdict.violate("a completion queue was destroyed under its queue pair");
        return;
      }
      if (!hca.destroy_qp(*end.qp, world_.clock.now()).ok()) {
        world_.verdict.violate("a queue pair cannot be destroyed");
      }
      end.qp = nullptr;
    }
  }
  for (auto& cqs : world_.cqs) {
    for (CqState& state : cqs) {
      if (!state.host->hca().destroy_cq(*state.cq).ok()) {
        world_.verdict.violate("a completion queue that nobody uses cannot be destroyed");
      }
    }
  }
}

}  // namespace uroce::sim
