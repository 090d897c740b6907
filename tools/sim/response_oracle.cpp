// What a responder's packets must be, given the requests that arrived.
#include <fmt/format.h>

#include <algorithm>

#include "tools/sim/wire_oracle.hpp"

namespace uroce::sim {

namespace opcode = transport::opcode;
using transport::PacketView;

namespace {

enum Syndrome : uint8_t { kAck = 0, kRnrNak = 1, kNak = 3 };
constexpr uint8_t kSequenceNak = 0x60;

Syndrome kind_of(const transport::Aeth& aeth) {
  return static_cast<Syndrome>(aeth.syndrome >> 5);
}

// How far into the peer's flow a response's PSN lies; near the packets that arrived last.
int64_t distance_of(const Flow& flow, uint32_t near, Psn psn) {
  return int64_t{near} + (psn - (flow.start + near));
}

// A READ response or ATOMIC acknowledgement leaves the responder.
void note_answered(WireHistory& wire, uint32_t distance, uint32_t end) {
  if (wire.to_answer.empty() || wire.to_answer.front() != distance) return;
  if (distance + 1 == end) {
    wire.to_answer.pop_front();
  } else {
    wire.to_answer.front() = distance + 1;
  }
}

}  // namespace

void WireOracle::judge_response(Endpoint& from, const PacketView& packet) {
  const Flow& flow = from.peer->flow;
  const int64_t distance = distance_of(flow, from.wire.arrived, packet.bth.psn);
  if (packet.bth.opcode == opcode::kAcknowledge) {
    judge_acknowledge(from, packet, distance);
    return;
  }
  const auto* operation =
      distance < 0 ? nullptr : flow.operation_at(static_cast<uint32_t>(distance));
  if (operation == nullptr || distance >= from.wire.arrived) {
    blame(from, packet, "answers a request that has not arrived");
    return;
  }
  const auto at = static_cast<uint32_t>(distance);
  if (packet.bth.opcode == opcode::kAtomicAcknowledge) {
    if (!operation->is_atomic()) {
      blame(from, packet, "answers something else than an ATOMIC");
      return;
    }
    const auto [known, fresh] =
        from.wire.atomic_originals.try_emplace(at, packet.atomic_ack_eth.original);
    if (!fresh && known->second != packet.atomic_ack_eth.original) {
      blame(from, packet, "a duplicate ATOMIC was answered with another original (C9-105)");
    }
    note_answered(from.wire, at, at + 1);
  } else if (!operation->is_read()) {
    blame(from, packet, "answers something else than a READ");
    return;
  } else {
    judge_read_response(from, packet, *operation, at);
  }
  if (packet.opcode->has(transport::kAethFlag)) {
    judge_msn(from, packet, int64_t{from.peer->wire.end_of_message(at)});
  }
}

void WireOracle::judge_read_response(Endpoint& from, const PacketView& packet,
                                     const Operation& operation, uint32_t distance) {
  WireHistory& wire = from.wire;
  const uint32_t mtu = bytes_of(from.connection->mtu);
  const uint64_t done = uint64_t{distance - operation.first_packet} * mtu;
  const size_t part = std::min<uint64_t>(mtu, operation.length - done);
  if (packet.payload.size() != part) {
    blame(from, packet,
          fmt::format("{} bytes of payload, expected {}", packet.payload.size(), part));
  }
  const uint32_t end = from.peer->wire.end_of_message(distance);
  if (packet.opcode->ends_message() != (distance + 1 == end)) {
    blame(from, packet, "FIRST, MIDDLE, LAST or ONLY is wrong");
  }
  if (packet.opcode->starts_message()) {
    if (distance >= wire.read_started.size() || !wire.read_started[distance]) {
      blame(from, packet, "starts a response where no READ request started");
    }
  } else if (const auto newest = wire.read_responses.find(end);
             newest == wire.read_responses.end() || newest->second + 1 != distance) {
    blame(from, packet, "does not follow the response before it");
  }
  wire.read_responses[end] = distance;
  note_answered(wire, distance, end);
}

void WireOracle::judge_acknowledge(Endpoint& from, const PacketView& packet, int64_t distance) {
  WireHistory& wire = from.wire;
  const Flow& flow = from.peer->flow;
  const transport::Aeth& aeth = packet.aeth;
  const int64_t acknowledged = kind_of(aeth) == kAck ? distance : distance - 1;
  if (!wire.to_answer.empty() && acknowledged >= wire.to_answer.front()) {
    blame(from, packet, "overtakes the response to a READ or ATOMIC");
  }
  if (kind_of(aeth) == kAck) {
    if (distance >= wire.arrived) blame(from, packet, "acknowledges what has not arrived");
    if (distance < wire.last_acknowledged) blame(from, packet, "acknowledges less than before");
    wire.last_acknowledged = std::max(wire.last_acknowledged, distance);
    judge_msn(from, packet, distance + 1);
    return;
  }
  if (distance < 0 || distance > wire.arrived || distance <= wire.last_acknowledged) {
    blame(from, packet, "NAKs a PSN that was not expected");
    return;
  }
  judge_msn(from, packet, distance);
  const auto* operation = flow.operation_at(static_cast<uint32_t>(distance));
  if (aeth.syndrome == kSequenceNak) {
    if (distance == wire.last_sequence_nak)
      blame(from, packet, "a second NAK for one gap (C9-114)");
    wire.last_sequence_nak = distance;
  } else if (kind_of(aeth) == kRnrNak) {
    if (operation == nullptr || !operation->consumes_receive()) {
      blame(from, packet, "RNR for an operation that needs no receive");
    } else if ((aeth.syndrome & 31) != from.plan->min_rnr_timer) {
      blame(from, packet, "not the RNR timer of the queue pair");
    }
  } else if (kind_of(aeth) != kNak) {
    blame(from, packet, "a reserved syndrome");
  } else if (operation == nullptr || !is_responder_fault(operation->fault)) {
    blame(from, packet, "refuses a request that nothing is wrong with");
  }
}

// The message sequence number counts what was executed (IBTA 9.7.7), a READ with its request: at
// least the messages in the first `executed` packets, at most those that arrived.
void WireOracle::judge_msn(const Endpoint& from, const PacketView& packet, int64_t executed) {
  const uint32_t least = from.peer->wire.messages_before(executed);
  const uint32_t most = from.peer->wire.messages_before(from.wire.arrived);
  if (packet.aeth.msn < least || packet.aeth.msn > most) {
    blame(from, packet, fmt::format("MSN is {}, must lie in {}..{}", packet.aeth.msn, least, most));
  }
}

void WireOracle::on_arrival(Endpoint& to, const PacketView& packet, Instant now) {
  if (packet.opcode->is_response) {
    note_response(to, packet, now);
  } else {
    note_request(to, packet);
  }
}

void WireOracle::note_request(Endpoint& to, const PacketView& packet) {
  WireHistory& wire = to.wire;
  const Flow& flow = to.peer->flow;
  const int64_t distance = distance_of(flow, wire.arrived, packet.bth.psn);
  const auto* operation =
      distance < 0 ? nullptr : flow.operation_at(static_cast<uint32_t>(distance));
  if (operation == nullptr) return;
  if (operation->is_read() && distance <= wire.arrived) {
    wire.read_started.resize(std::max<size_t>(wire.read_started.size(), distance + 1));
    wire.read_started[distance] = true;
  }
  if (distance == wire.arrived) {
    if (operation->is_read() || operation->is_atomic()) wire.to_answer.push_back(wire.arrived);
    wire.arrived += span_of(packet, bytes_of(to.connection->mtu));
  }
}

void WireOracle::note_response(Endpoint& to, const PacketView& packet, Instant now) {
  WireHistory& wire = to.wire;
  const int64_t distance = distance_of(to.flow, wire.unacknowledged, packet.bth.psn);
  wire.last_response = now;
  if (distance < 0 || distance > wire.next_new) return;
  const auto at = static_cast<uint32_t>(distance);
  uint32_t heard = wire.unacknowledged;  // everything before it has been answered
  if (packet.bth.opcode != opcode::kAcknowledge) {
    heard = at;
    if (!wire.unanswered.empty() && wire.unanswered.front() == at) {
      heard = at + 1;
      if (at + 1 == wire.end_of_message(at)) {
        wire.unanswered.pop_front();
      } else {
        wire.unanswered.front() = at + 1;
      }
    }
  } else {
    heard = kind_of(packet.aeth) == kAck ? at + 1 : at;
  }
  // What lies behind a READ that is not answered yet is not acknowledged (9.9.2.2).
  if (!wire.unanswered.empty()) heard = std::min(heard, wire.unanswered.front());
  if (heard > wire.unacknowledged) {
    wire.unacknowledged = heard;
    wire.rnr_in_a_row = 0;
    wire.quiet_until = now;
  }
  if (packet.bth.opcode == opcode::kAcknowledge && kind_of(packet.aeth) == kRnrNak &&
      at == wire.unacknowledged) {
    ++wire.rnr_in_a_row;
    wire.quiet_from = at;
    // A duplicate that comes during the wait may be ignored.
    if (now >= wire.quiet_until) {
      wire.quiet_until = now + rnr_timer_ns(packet.aeth.syndrome & 31);
    }
  }
}

}  // namespace uroce::sim
