// The HCA's data path: packets to queue pairs, and queue pairs in turn to the wire.
#include "transport/hca.hpp"

#include <algorithm>

#include "transport/hca_state.hpp"
#include "transport/rc_completer.hpp"
#include "transport/rc_completion.hpp"
#include "transport/rc_requester.hpp"
#include "transport/rc_responder.hpp"

namespace uroce::transport {

namespace {

// A queue pair's share of a burst, so that many are served fairly.
constexpr size_t kTurnPackets = 16;
// Replies go before requests, but bulk READ responses take their turn like requests.
constexpr size_t kReplyPackets = 4;

RcQueuePair& rc(QueuePair& qp) {
  return static_cast<RcQueuePair&>(qp);  // the only kind that create_qp makes
}

// A limited member talks to a full one, which we are (IBTA 10.9.3).
bool pkey_matches(uint16_t pkey) {
  return (pkey & 0x7fff) == 0x7fff;
}

DropReason check_state(QpState state, bool is_response) {
  switch (state) {
    case QpState::kRts:
    case QpState::kSqd:
    case QpState::kSqe:
      return DropReason::kCount;
    case QpState::kRtr:
      return is_response ? DropReason::kWrongState : DropReason::kCount;
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kError:
    case QpState::kUnknown:
      return DropReason::kWrongState;
  }
  return DropReason::kWrongState;
}

// kCount: the packet may go on to the queue pair.
DropReason check_packet(const RcQueuePair& qp, const PacketView& packet,
                        const PacketOrigin& origin) {
  if (packet.opcode->service != Service::kRc) return DropReason::kWrongService;
  if (!pkey_matches(packet.bth.pkey)) return DropReason::kPkeyMismatch;
  const DropReason state = check_state(qp.state(), packet.opcode->is_response);
  if (state != DropReason::kCount) return state;
  if (origin.source_gid != qp.connection.peer_gid) return DropReason::kWrongSource;
  return DropReason::kCount;
}

// The first packet of a connection that the consumer has not moved to RTS yet (IBTA 11.6.3.1).
void note_established(Engine& engine, RcQueuePair& qp) {
  if (qp.responder.established) return;
  qp.responder.established = true;
  if (qp.state() == QpState::kRtr) {
    engine.events.on_async_event(AsyncEventType::kCommunicationEstablished, qp.owner());
  }
}

}  // namespace

void Hca::activate(QueuePair& queue_pair, Instant) {
  Engine& engine = state_->engine;
  RcQueuePair& qp = rc(queue_pair);
  if (qp.state() == QpState::kError) {
    flush(qp);
    settle(engine, qp);
  } else {
    engine.work.push(qp);
  }
}

void Hca::count_drop(DropReason reason) {
  state_->engine.drop(reason);
}

void Hca::on_packet(const PacketView& packet, const PacketOrigin& origin, Instant now) {
  Engine& engine = state_->engine;
  ++engine.counters.rx_packets;
  engine.counters.rx_bytes += packet.payload.size();
  RcQueuePair* qp = state_->qps.find(packet.bth.destination_qpn);
  if (qp == nullptr) return engine.drop(DropReason::kUnknownQpn);
  const DropReason reason = check_packet(*qp, packet, origin);
  if (reason != DropReason::kCount) return engine.drop(reason);
  if (packet.opcode->is_response) {
    RcCompleter(engine, *qp, now).on_response(packet);
  } else {
    note_established(engine, *qp);
    RcResponder(engine, *qp).on_request(packet);
  }
  settle(engine, *qp);
}

size_t Hca::poll_transmit(TransmitSink& sink, size_t budget, Instant now) {
  Engine& engine = state_->engine;
  while (RcQueuePair* qp = engine.parked.pop()) engine.work.push(*qp);
  size_t sent = 0;
  while (sent < budget) {
    RcQueuePair* qp = engine.replies.pop();
    if (qp == nullptr) break;
    const size_t share = std::min(kReplyPackets, budget - sent);
    const Turn turn = RcResponder(engine, *qp).poll_transmit({sink, share, now});
    sent += turn.sent;
    if (turn.end == TurnEnd::kBudget) engine.work.push(*qp);
    if (turn.end == TurnEnd::kParked) engine.parked.push(*qp);
  }
  while (sent < budget) {
    RcQueuePair* qp = engine.work.pop();
    if (qp == nullptr) break;
    const size_t share = std::min(kTurnPackets, budget - sent);
    Turn turn = RcResponder(engine, *qp).poll_transmit({sink, share, now});
    sent += turn.sent;
    if (turn.end != TurnEnd::kParked && turn.sent < share) {
      const Turn requests =
          RcRequester(engine, *qp, now).poll_transmit({sink, share - turn.sent, now});
      sent += requests.sent;
      turn.end = requests.end;
    } else if (turn.end == TurnEnd::kIdle) {
      turn.end = TurnEnd::kBudget;  // the requester has not had its turn
    }
    if (turn.end == TurnEnd::kBudget) engine.work.push(*qp);
    if (turn.end == TurnEnd::kParked) engine.parked.push(*qp);
    settle(engine, *qp);
  }
  return sent;
}

bool Hca::transmit_pending() const {
  return !state_->engine.replies.empty() || !state_->engine.work.empty();
}

bool Hca::transmit_parked() const {
  return !state_->engine.parked.empty();
}

void Hca::on_timeout(Instant now) {
  Engine& engine = state_->engine;
  while (TimerNode* node = engine.timers.pop_expired(now)) {
    RcQueuePair& qp = static_cast<QpTimer*>(node)->qp;
    RcRequester(engine, qp, now).on_timeout();
    settle(engine, qp);
  }
}

Instant Hca::next_deadline() const {
  return state_->engine.timers.next_deadline();
}

const HcaCounters& Hca::counters() const {
  return state_->engine.counters;
}

}  // namespace uroce::transport
