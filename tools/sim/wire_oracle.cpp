// What a requester's packets must be, given the operations that were posted.
#include "tools/sim/wire_oracle.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace uroce::sim {

namespace opcode = transport::opcode;
using transport::PacketView;
using transport::SendOpcode;

namespace {

// The opcode of the packet that starts `done` bytes into an operation.
uint8_t request_opcode(const Operation& operation, uint64_t done, uint32_t mtu) {
  const bool first = done == 0;
  const bool last = operation.length - done <= mtu;
  const bool immediate = operation.has_immediate();
  switch (operation.opcode) {
    case SendOpcode::kRdmaRead:
      return opcode::kReadRequest;
    case SendOpcode::kAtomicCmpAndSwp:
      return opcode::kCompareSwap;
    case SendOpcode::kAtomicFetchAndAdd:
      return opcode::kFetchAdd;
    case SendOpcode::kSend:
    case SendOpcode::kSendWithImm:
      if (first && last) return immediate ? opcode::kSendOnlyImm : opcode::kSendOnly;
      if (last) return immediate ? opcode::kSendLastImm : opcode::kSendLast;
      return first ? opcode::kSendFirst : opcode::kSendMiddle;
    case SendOpcode::kRdmaWrite:
    case SendOpcode::kRdmaWriteWithImm:
      if (first && last) return immediate ? opcode::kWriteOnlyImm : opcode::kWriteOnly;
      if (last) return immediate ? opcode::kWriteLastImm : opcode::kWriteLast;
      return first ? opcode::kWriteFirst : opcode::kWriteMiddle;
  }
  return 0xff;
}

}  // namespace

void WireOracle::blame(const Endpoint& end, const PacketView& packet, std::string_view what) {
  verdict_.violate(fmt::format("{} sent {} psn {:#x}: {}", name_of(end), packet.opcode->name,
                               packet.bth.psn.value(), what));
}

void WireOracle::on_transmit(Endpoint& from, const PacketView& packet, Instant now) {
  if (packet.bth.destination_qpn != from.peer->qpn) {
    blame(from, packet, "the destination is not the peer");
    return;
  }
  if (packet.bth.pad_count != (4 - packet.payload.size() % 4) % 4) {
    blame(from, packet, "the pad does not fill up to a multiple of 4");
  }
  if (!packet.bth.mig_req) blame(from, packet, "MigReq is not set");
  if (packet.opcode->service != transport::Service::kRc) {
    blame(from, packet, "not an RC packet");
  } else if (packet.opcode->is_response) {
    judge_response(from, packet);
  } else {
    judge_request(from, packet, now);
  }
}

void WireOracle::judge_request(Endpoint& from, const PacketView& packet, Instant now) {
  const int64_t distance =
      int64_t{from.wire.next_new} + (packet.bth.psn - (from.flow.start + from.wire.next_new));
  const Operation* operation =
      distance < 0 ? nullptr : from.flow.operation_at(static_cast<uint32_t>(distance));
  if (operation == nullptr) {
    blame(from, packet, "no posted operation has this PSN");
    return;
  }
  const auto at = static_cast<uint32_t>(distance);
  if (operation->fault == Fault::kBadLkey && !operation->payload.empty()) {
    blame(from, packet, "the operation's L_Key is not valid");
    return;
  }
  judge_content(from, packet, *operation, at);
  judge_order(from, packet, *operation, at, now);
}

void WireOracle::judge_order(Endpoint& from, const PacketView& packet, const Operation& operation,
                             uint32_t distance, Instant now) {
  WireHistory& wire = from.wire;
  const uint32_t end = distance + span_of(packet, bytes_of(from.connection->mtu));
  const auto blame_order = [&](std::string_view what) {
    verdict_.violate(fmt::format("{} sent PSN {:#x}, {} packets into its flow: {}", name_of(from),
                                 (from.flow.start + distance).value(), distance, what));
  };
  WireHistory::Sent& sent = wire.sent[distance];
  if (distance == wire.next_new) {
    if ((operation.flags & transport::kFence) != 0 && distance == operation.first_packet &&
        !wire.unanswered.empty()) {
      blame_order("fenced, but an earlier READ or ATOMIC has not been answered (IBTA 10.8.3.3)");
    }
    if (operation.is_read() || operation.is_atomic()) {
      wire.unanswered.push_back(distance);
      if (wire.unanswered.size() > from.plan->max_rd_atomic) {
        blame_order("more READs and ATOMICs in flight than max_rd_atomic");
      }
    }
    wire.next_new = end;
    if (operation.is_read() || distance == operation.last_packet())
      wire.message_ends.push_back(end);
  } else if (distance > wire.next_new) {
    blame_order(fmt::format("the next PSN is {} packets into it", wire.next_new));
  } else if (distance < from.flow.completed_packets()) {
    blame_order("retransmission of an operation whose completion was polled");
  } else if (operation.is_read() && end != wire.end_of_message(distance)) {
    blame_order("the repeated READ request ends elsewhere than the first");
  } else if (distance == wire.unacknowledged && sent.times > 0 && wire.last_response < sent.last &&
             (sent.asked || !packet.bth.ack_request) &&
             now - sent.last < ack_timeout_ns(from.plan->ack_timeout) / 2) {
    // Half of it: the timer may run from the decision to repeat, the packet leaves later.
    blame_order("retransmitted before the timeout though nothing was heard");
  }
  if (distance >= wire.quiet_from && now < wire.quiet_until) {
    blame_order("sent before the RNR wait was over");
  }
  ++sent.times;
  sent.last = now;
  sent.asked |= packet.bth.ack_request;
}

void WireOracle::judge_content(const Endpoint& from, const PacketView& packet,
                               const Operation& operation, uint32_t distance) {
  const uint32_t mtu = bytes_of(from.connection->mtu);
  const uint64_t done = uint64_t{distance - operation.first_packet} * mtu;
  if (packet.bth.opcode != request_opcode(operation, done, mtu)) {
    blame(from, packet,
          fmt::format("{} bytes into a {} of {} bytes the opcode must be {}", done,
                      name_of(operation.opcode), operation.length,
                      transport::kOpcodes[request_opcode(operation, done, mtu)].name));
    return;
  }
  const bool last = operation.length - done <= mtu;
  const bool solicited =
      last && operation.consumes_receive() && (operation.flags & transport::kSolicited) != 0;
  if (packet.bth.solicited != solicited) blame(from, packet, "the solicited bit is wrong");
  judge_start(from, packet, operation, done);
  if (packet.opcode->has(transport::kImmediateFlag) && packet.immediate != operation.immediate) {
    blame(from, packet, "the immediate is not what was posted");
  }
  if (operation.is_read() || operation.is_atomic()) return;
  const size_t part = std::min<uint64_t>(mtu, operation.length - done);
  if (packet.payload.size() != part) {
    blame(from, packet,
          fmt::format("{} bytes of payload, expected {}", packet.payload.size(), part));
  } else if (!std::equal(packet.payload.begin(), packet.payload.end(),
                         operation.payload.begin() + static_cast<ptrdiff_t>(done))) {
    blame(from, packet, "the payload is not what was posted");
  }
}

// RETH and AtomicETH.
void WireOracle::judge_start(const Endpoint& from, const PacketView& packet,
                             const Operation& operation, uint64_t done) {
  if (packet.opcode->has(transport::kRethFlag)) {
    const transport::Reth& reth = packet.reth;
    if (reth.virtual_address != operation.remote_address + done) {
      blame(from, packet, "RETH: wrong address");
    }
    if (reth.rkey != operation.rkey) blame(from, packet, "RETH: wrong R_Key");
    // A READ may be asked for in parts, each but the last of whole packets.
    const uint64_t rest = operation.length - done;
    const bool part = operation.is_read() && reth.dma_length < rest && reth.dma_length > 0 &&
                      reth.dma_length % bytes_of(from.connection->mtu) == 0;
    if (reth.dma_length != rest && !part) blame(from, packet, "RETH: wrong length");
  }
  if (packet.opcode->has(transport::kAtomicEthFlag)) {
    const transport::AtomicEth& eth = packet.atomic_eth;
    const bool swap = operation.opcode == SendOpcode::kAtomicCmpAndSwp;
    if (eth.virtual_address != operation.remote_address) {
      blame(from, packet, "AtomicETH: wrong address");
    }
    if (eth.rkey != operation.rkey) blame(from, packet, "AtomicETH: wrong R_Key");
    if (eth.swap_add != (swap ? operation.swap : operation.compare_add)) {
      blame(from, packet, "AtomicETH: wrong swap/add operand");
    }
    if (swap && eth.compare != operation.compare_add) {
      blame(from, packet, "AtomicETH: wrong compare operand");
    }
  }
}

uint32_t span_of(const PacketView& request, uint32_t mtu) {
  if (request.bth.opcode != opcode::kReadRequest) return 1;
  return std::max(1u, (request.reth.dma_length + mtu - 1) / mtu);
}

bool retries_exhausted(const Endpoint& end) {
  const WireHistory& wire = end.wire;
  if (wire.unacknowledged >= wire.next_new) return false;
  const Operation* oldest = end.flow.operation_at(wire.unacknowledged);
  if (oldest == nullptr) return false;
  // The rest of a READ that was answered in part has been requested once without a request.
  const uint32_t implied = wire.unacknowledged != oldest->first_packet && oldest->is_read() ? 1 : 0;
  return wire.sent[wire.unacknowledged].times + implied > end.plan->retry_count;
}

bool rnr_retries_exhausted(const Endpoint& end) {
  return end.plan->rnr_retry < 7 && end.wire.rnr_in_a_row > end.plan->rnr_retry;
}

int64_t rnr_timer_ns(uint8_t code) {
  // Hundredths of a millisecond.
  static constexpr int64_t kTimers[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                          16,    24,   32,   48,    64,    96,    128,   192,
                                          256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                          4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return kTimers[code & 31] * 10'000;
}

int64_t ack_timeout_ns(uint8_t code) {
  return code == 0 ? Instant::never().ns : int64_t{4096} << code;
}

}  // namespace uroce::sim
