// Takes responses in PSN order; each acknowledges everything before it.
#include "transport/rc_completer.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/rc_completion.hpp"
#include "transport/syndrome.hpp"

namespace uroce::transport {

void RcCompleter::on_response(const PacketView& packet) {
  const Psn psn = packet.bth.psn;
  // A NAK may name the PSN after the last one: everything has come, whatever was reordered.
  const bool beyond = packet.opcode->operation == Operation::kAcknowledge &&
                              aeth_kind(packet.aeth.syndrome) == AethKind::kNak
                          ? psn - state_.sent_end > 0
                          : psn - state_.sent_end >= 0;
  if (beyond || psn - state_.una < 0) {
    engine_.drop(DropReason::kGhostAcknowledge);
    return;
  }
  switch (packet.opcode->operation) {
    case Operation::kAcknowledge:
      on_acknowledge(packet);
      return;
    case Operation::kReadResponse:
      on_read_response(packet);
      return;
    case Operation::kAtomicAcknowledge:
      on_atomic_acknowledge(packet);
      return;
    case Operation::kNone:
    case Operation::kSend:
    case Operation::kWrite:
    case Operation::kReadRequest:
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
    case Operation::kCnp:
      engine_.drop(DropReason::kUnexpectedResponse);
      return;
  }
}

void RcCompleter::on_acknowledge(const PacketView& packet) {
  switch (aeth_kind(packet.aeth.syndrome)) {
    case AethKind::kAck:
      on_ack(packet.bth.psn);
      return;
    case AethKind::kRnrNak:
      on_rnr_nak(packet);
      return;
    case AethKind::kNak:
      on_nak(packet);
      return;
    case AethKind::kReserved:
      engine_.drop(DropReason::kUnexpectedResponse);
      return;
  }
}

void RcCompleter::on_ack(Psn psn) {
  if (!acknowledge_before(psn + 1)) on_implied_nak();
}

void RcCompleter::on_rnr_nak(const PacketView& packet) {
  const Psn psn = packet.bth.psn;
  ++engine_.counters.rnr_nak_retry_err;
  if (!acknowledge_before(psn)) {
    on_implied_nak();
    return;
  }
  const int64_t wait_ns = rnr_timer_ns(aeth_value(packet.aeth.syndrome));
  // A copy of one that is being obeyed, or has been while nothing was sent since: it is no further
  // try, but when the wait is over it is obeyed again.
  if (requester_.resting_after_rnr()) {
    if (requester_.rnr_wait_over()) requester_.on_receiver_not_ready(wait_ns);
    return;
  }
  if (qp_.connection.rnr_retry != 7) {  // 7: without end (IBTA 9.7.5.2.8)
    if (state_.rnr_retries_left == 0) {
      fail_requester(engine_, qp_, CompletionStatus::kRnrRetryExceededError);
      return;
    }
    --state_.rnr_retries_left;
  }
  requester_.on_receiver_not_ready(wait_ns);
}

void RcCompleter::on_nak(const PacketView& packet) {
  const Psn psn = packet.bth.psn;
  const uint8_t code = aeth_value(packet.aeth.syndrome);
  if (code >= kNakCodeCount) {
    engine_.drop(DropReason::kUnexpectedResponse);
    return;
  }
  if (!acknowledge_before(psn)) {
    // In the middle of READ responses it ends the operation (IBTA 9.9.2.2); beyond a pending READ
    // it only says that the READ's responses are lost.
    const SendWqe& wqe = qp_.send_queue().at(state_.una_index);
    const uint32_t index = packets_between(wqe.first_psn, psn);
    if (!wqe.is_read() || index >= qp_.connection.packets_of(wqe.length)) {
      on_implied_nak();
      return;
    }
  }
  if (static_cast<NakCode>(code) == NakCode::kSequenceError) {
    ++engine_.counters.packet_seq_err;
    requester_.on_loss();
    return;
  }
  if (psn == state_.sent_end || state_.una_index == state_.started) {
    engine_.drop(DropReason::kGhostAcknowledge);
    return;
  }
  CompletionStatus status = CompletionStatus::kRemoteOperationError;
  switch (static_cast<NakCode>(code)) {
    case NakCode::kInvalidRequest:
    case NakCode::kInvalidRdRequest:
      ++engine_.counters.req_remote_invalid_request;
      status = CompletionStatus::kRemoteInvalidRequestError;
      break;
    case NakCode::kRemoteAccessError:
      ++engine_.counters.req_remote_access_errors;
      status = CompletionStatus::kRemoteAccessError;
      break;
    case NakCode::kRemoteOperationalError:
    case NakCode::kSequenceError:
      break;
  }
  fail_requester(engine_, qp_, status);
}

void RcCompleter::on_read_response(const PacketView& packet) {
  SendWqe* wqe = fetch_at(packet.bth.psn);
  if (wqe == nullptr) return;
  const RcConnection& connection = qp_.connection;
  const uint32_t index = packets_between(wqe->first_psn, state_.una);
  const uint32_t offset = index << connection.mtu_shift;
  if (!wqe->is_read() || packet.payload.size() != std::min(wqe->length - offset, connection.mtu)) {
    fail_requester(engine_, qp_, CompletionStatus::kBadResponseError);
    return;
  }
  if (index == 0) state_.scatter = {};
  const SgeList list{engine_.regions, qp_.init_attributes().pd, wqe->sges()};
  if (!scatter(list, state_.scatter, packet.payload)) {
    fail_requester(engine_, qp_, CompletionStatus::kLocalProtectionError);
    return;
  }
  finish_fetch_packet(*wqe);
}

void RcCompleter::on_atomic_acknowledge(const PacketView& packet) {
  SendWqe* wqe = fetch_at(packet.bth.psn);
  if (wqe == nullptr) return;
  if (!wqe->is_atomic()) {
    fail_requester(engine_, qp_, CompletionStatus::kBadResponseError);
    return;
  }
  std::array<std::byte, sizeof(uint64_t)> original;
  std::memcpy(original.data(), &packet.atomic_ack_eth.original, original.size());
  SgeCursor cursor;
  const SgeList list{engine_.regions, qp_.init_attributes().pd, wqe->sges()};
  if (!scatter(list, cursor, original)) {
    fail_requester(engine_, qp_, CompletionStatus::kLocalProtectionError);
    return;
  }
  finish_fetch_packet(*wqe);
}

// The READ or ATOMIC that a data response at `psn` belongs to, everything before it acknowledged;
// null, with what follows from that done, if the response is not the next one due.
SendWqe* RcCompleter::fetch_at(Psn psn) {
  if (!acknowledge_before(psn)) {
    on_implied_nak();
    return nullptr;
  }
  SendWqe* wqe =
      state_.una_index == state_.started ? nullptr : &qp_.send_queue().at(state_.una_index);
  if (wqe == nullptr || !wqe->is_fetch()) {
    engine_.drop(DropReason::kUnexpectedResponse);
    return nullptr;
  }
  return wqe;
}

// One PSN of the oldest READ or ATOMIC has been answered.
void RcCompleter::finish_fetch_packet(const SendWqe& wqe) {
  state_.una = state_.una + 1;
  if (packets_between(wqe.first_psn, state_.una) == qp_.connection.packets_of(wqe.length)) {
    complete_send(qp_, state_.una_index, CompletionStatus::kSuccess);
    ++state_.una_index;
  }
  if (state_.fetch_head != state_.fetch_tail &&
      state_.fetch_ends[state_.fetch_head % kMaxFetches] - state_.una <= 0) {
    if (state_.fetch_issued == state_.fetch_head) ++state_.fetch_issued;
    ++state_.fetch_head;
  }
  requester_.on_progress(1);
}

// Acknowledges all PSNs before `end`, completing their WQEs. False if it stopped at a READ or
// ATOMIC, whose response is missing.
bool RcCompleter::acknowledge_before(Psn end) {
  const Psn before = state_.una;
  bool complete = true;
  while (end - state_.una > 0 && state_.una_index != state_.started) {
    const SendWqe& wqe = qp_.send_queue().at(state_.una_index);
    if (wqe.is_fetch()) {
      complete = false;
      break;
    }
    const Psn wqe_end = wqe.first_psn + qp_.connection.packets_of(wqe.length);
    if (end - wqe_end < 0) {
      state_.una = end;
      break;
    }
    state_.una = wqe_end;
    complete_send(qp_, state_.una_index, CompletionStatus::kSuccess);
    ++state_.una_index;
  }
  const uint32_t packets = packets_between(before, state_.una);
  if (packets != 0) requester_.on_progress(packets);
  return complete;
}

// A response beyond one that is missing (IBTA 9.7.5.1.2).
void RcCompleter::on_implied_nak() {
  ++engine_.counters.implied_nak_seq_err;
  requester_.on_loss();
}

}  // namespace uroce::transport
