// Packet generation: which WQE may go on, and the packets of each operation.
#include "transport/rc_requester.hpp"

#include <algorithm>

#include "transport/rc_completion.hpp"

namespace uroce::transport {

namespace {

// FIRST, MIDDLE, LAST and ONLY of the operations whose requests carry data.
uint8_t data_opcode(SendOpcode operation, bool first, bool last) {
  const bool write =
      operation == SendOpcode::kRdmaWrite || operation == SendOpcode::kRdmaWriteWithImm;
  const bool immediate =
      operation == SendOpcode::kRdmaWriteWithImm || operation == SendOpcode::kSendWithImm;
  const uint8_t base = write ? opcode::kWriteFirst : opcode::kSendFirst;
  const uint32_t position = last ? (first ? 4u : 2u) + (immediate ? 1u : 0u) : (first ? 0u : 1u);
  return static_cast<uint8_t>(base + position);
}

}  // namespace

bool RcRequester::has_work() const {
  return state_.send_index != qp_.send_queue().ring.posted();
}

Turn RcRequester::poll_transmit(const TurnShare& share) {
  Turn turn;
  const QpState qp_state = qp_.state();
  if (qp_state != QpState::kRts && qp_state != QpState::kSqd) return turn;
  while (turn.sent < share.budget) {
    if (state_.wait == RequesterWait::kRnr) return turn;
    SendWqe* wqe = next_wqe();
    if (wqe == nullptr || in_flight() >= state_.window) return turn;
    const Step step = wqe->is_fetch() ? send_fetch(share.sink, *wqe) : send_data(share.sink, *wqe);
    if (step == Step::kParked) turn.end = TurnEnd::kParked;
    if (step != Step::kSent) return turn;
    ++turn.sent;
  }
  if (has_work()) turn.end = TurnEnd::kBudget;
  return turn;
}

// The WQE that the next packet belongs to, started if it is new; null when none may go on.
SendWqe* RcRequester::next_wqe() {
  SendQueue& queue = qp_.send_queue();
  if (state_.send_index != state_.started) return &queue.at(state_.send_index);
  if (state_.started == queue.ring.posted() || qp_.state() == QpState::kSqd) return nullptr;
  SendWqe& wqe = queue.at(state_.started);
  // A fence waits for READs and ATOMICs only (IBTA 10.8.3.3).
  if (wqe.has(kFence) && state_.fetch_head != state_.fetch_tail) return nullptr;
  if (const CompletionStatus status = check_start(wqe); status != CompletionStatus::kSuccess) {
    // Fails in its turn: work before it completes first.
    if (state_.una_index == state_.started) fail_requester(engine_, qp_, status);
    return nullptr;
  }
  wqe.first_psn = state_.next_psn;
  state_.gather = {};
  ++state_.started;
  return &wqe;
}

CompletionStatus RcRequester::check_start(const SendWqe& wqe) const {
  if (wqe.is_fetch() && qp_.connection.max_rd_atomic == 0) {
    return CompletionStatus::kLocalQpOperationError;
  }
  if (wqe.is_atomic() && wqe.length != sizeof(uint64_t)) return CompletionStatus::kLocalLengthError;
  if (wqe.has(kInline)) return CompletionStatus::kSuccess;
  const MemoryRefusal refusal = check_sges(list_of(wqe), wqe.is_fetch() ? kLocalWrite : 0u);
  return refusal == MemoryRefusal::kNone ? CompletionStatus::kSuccess
                                         : CompletionStatus::kLocalProtectionError;
}

RcRequester::Step RcRequester::send_data(TransmitSink& sink, SendWqe& wqe) {
  const RcConnection& connection = qp_.connection;
  const uint32_t index = packets_between(wqe.first_psn, state_.next_psn);
  const uint32_t offset = index << connection.mtu_shift;
  const uint32_t remaining = wqe.length - offset;
  const bool first = index == 0;
  const bool last = remaining <= connection.mtu;
  const uint32_t payload = last ? remaining : connection.mtu;
  if (!sink.can_send(connection.path, connection.remote_qpn, payload)) return Step::kParked;
  if (!gather_payload(wqe, offset, payload)) return refuse_memory();

  OutgoingPacket& packet = engine_.packet;
  const bool ask = wants_ack(wqe, last);
  Bth bth;
  bth.opcode = data_opcode(wqe.opcode, first, last);
  // A plain WRITE solicits nothing: no receive completes (IBTA 9.2.3).
  bth.solicited = last && wqe.has(kSolicited) && wqe.takes_receive();
  bth.pad_count = pad_for(payload);
  bth.destination_qpn = connection.remote_qpn;
  bth.ack_request = ask;
  bth.psn = state_.next_psn;
  begin_headers(packet, bth);
  if (kOpcodes[bth.opcode].has(kRethFlag)) {
    append(packet, Reth{wqe.remote_address, wqe.rkey, wqe.length});
  }
  if (last && wqe.has_immediate()) append_immediate(packet, static_cast<uint32_t>(wqe.operand));
  packet.path = connection.path;
  packet.source_qpn = qp_.qpn();
  packet.payload_length = payload;
  sink.send(packet);

  count_sent(payload);
  ask ? note_asked(state_.next_psn) : note_unasked();
  state_.next_psn = state_.next_psn + 1;
  if (state_.next_psn - state_.sent_end > 0) state_.sent_end = state_.next_psn;
  if (last) {
    ++state_.send_index;
    state_.gather = {};
  }
  return Step::kSent;
}

bool RcRequester::gather_payload(const SendWqe& wqe, uint32_t offset, uint32_t length) {
  OutgoingPacket& packet = engine_.packet;
  packet.segment_count = 0;
  if (length == 0) return true;
  if (!wqe.has(kInline)) return gather(list_of(wqe), state_.gather, length, packet);
  packet.segments[0] = {wqe.area() + offset, length};
  packet.segment_count = 1;
  return true;
}

// A region went away while its WQE was in flight.
RcRequester::Step RcRequester::refuse_memory() {
  // Fails in its turn, like one that never could.
  if (state_.una_index == state_.send_index) {
    fail_requester(engine_, qp_, CompletionStatus::kLocalProtectionError);
  } else {
    seek(state_.next_psn);  // the list's cursor may stand in the middle of the packet
  }
  return Step::kBlocked;
}

// A READ request for what fits the window, or an ATOMIC.
RcRequester::Step RcRequester::send_fetch(TransmitSink& sink, const SendWqe& wqe) {
  const RcConnection& connection = qp_.connection;
  const uint32_t index = packets_between(wqe.first_psn, state_.next_psn);
  const uint32_t packets_left = packets_of(wqe) - index;
  if (state_.fetch_issued == state_.fetch_tail && !open_fetch(wqe, packets_left)) {
    return Step::kBlocked;
  }
  if (!sink.can_send(connection.path, connection.remote_qpn, 0)) return Step::kParked;

  const Psn end = state_.fetch_ends[state_.fetch_issued % kMaxFetches];
  const uint32_t packets = packets_between(state_.next_psn, end);
  OutgoingPacket& packet = engine_.packet;
  Bth bth;
  bth.destination_qpn = connection.remote_qpn;
  bth.ack_request = true;
  bth.psn = state_.next_psn;
  if (wqe.is_read()) {
    const uint32_t offset = index << connection.mtu_shift;
    const uint64_t room = uint64_t{packets} << connection.mtu_shift;
    const auto length = static_cast<uint32_t>(std::min<uint64_t>(wqe.length - offset, room));
    bth.opcode = opcode::kReadRequest;
    begin_headers(packet, bth);
    append(packet, Reth{wqe.remote_address + offset, wqe.rkey, length});
  } else {
    const bool swap = wqe.opcode == SendOpcode::kAtomicCmpAndSwp;
    bth.opcode = swap ? opcode::kCompareSwap : opcode::kFetchAdd;
    begin_headers(packet, bth);
    append(packet, swap ? AtomicEth{wqe.remote_address, wqe.rkey, wqe.swap(), wqe.operand}
                        : AtomicEth{wqe.remote_address, wqe.rkey, wqe.operand, 0});
  }
  packet.path = connection.path;
  packet.source_qpn = qp_.qpn();
  packet.segment_count = 0;
  packet.payload_length = 0;
  sink.send(packet);

  count_sent(0);
  ++state_.fetch_issued;
  state_.next_psn = end;
  if (end - state_.sent_end > 0) state_.sent_end = end;
  note_asked(end + Psn::kMask);  // the last of its PSNs
  if (packets == packets_left) {
    ++state_.send_index;
    state_.gather = {};
  }
  return Step::kSent;
}

// Makes room in the ring of fetches for a new request; false when it has to wait.
bool RcRequester::open_fetch(const SendWqe& wqe, uint32_t packets_left) {
  if (static_cast<uint8_t>(state_.fetch_tail - state_.fetch_head) >= qp_.connection.max_rd_atomic) {
    return false;
  }
  uint32_t packets = 1;
  if (wqe.is_read()) {
    // A READ whose responses exceed the window is asked for in parts, none of them tiny. No part
    // comes near half the PSN space.
    const uint32_t room = state_.window - in_flight();
    const uint32_t least = std::min<uint32_t>(packets_left, std::max(state_.window / 4, 1));
    if (room < least && in_flight() != 0) return false;
    packets = std::min(packets_left, room);
  }
  state_.fetch_ends[state_.fetch_tail % kMaxFetches] = state_.next_psn + packets;
  ++state_.fetch_tail;
  return true;
}

// Whether the packet at next_psn asks for an acknowledgement.
bool RcRequester::wants_ack(const SendWqe& wqe, bool ends_message) const {
  if (ends_message && wqe.has(kSignaled)) return true;
  const uint32_t interval = std::min<uint32_t>(state_.window / 4, kMaximumAskInterval);
  if (state_.unasked + 1u >= interval || in_flight() + 1 >= state_.window) return true;
  // The last packet of a retransmission.
  if (state_.next_psn - state_.sent_end < 0) return state_.next_psn + 1 == state_.sent_end;
  // Without a timer nothing would ever ask for the last one.
  return ends_message && qp_.connection.ack_timeout_ns == 0 &&
         state_.send_index + 1 == qp_.send_queue().ring.posted();
}

void RcRequester::count_sent(uint32_t payload) {
  ++engine_.counters.tx_packets;
  engine_.counters.tx_bytes += payload;
  if (state_.next_psn - state_.sent_end < 0) ++engine_.counters.tx_retransmitted_packets;
}

}  // namespace uroce::transport
