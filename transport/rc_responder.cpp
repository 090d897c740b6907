// Validates and executes requests.
#include "transport/rc_responder.hpp"

#include <algorithm>

#include "transport/user_memory.hpp"

namespace uroce::transport {

namespace {

constexpr uint32_t kMaxMessageBytes = 1u << 31;  // IBTA C9-94

}  // namespace

void RcResponder::on_request(const PacketView& packet) {
  const int32_t distance = packet.bth.psn - state_.expected_psn;
  if (distance > 0) return on_gap();
  if (distance < 0) return on_duplicate(packet);
  switch (packet.opcode->operation) {
    case Operation::kSend:
      return on_send(packet);
    case Operation::kWrite:
      return on_write(packet);
    case Operation::kReadRequest:
      return on_read(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return on_atomic(packet);
    case Operation::kNone:
    case Operation::kReadResponse:
    case Operation::kAcknowledge:
    case Operation::kAtomicAcknowledge:
    case Operation::kCnp:
      return engine_.drop(DropReason::kUnexpectedResponse);
  }
}

// One NAK per gap; what follows it is dropped in silence (IBTA 9.7.5.1.1).
void RcResponder::on_gap() {
  ++engine_.counters.out_of_sequence;
  if (state_.silent) return engine_.drop(DropReason::kOutOfSequence);
  state_.silent = true;
  owe(Reply::kSequenceNak);
}

void RcResponder::on_send(const PacketView& packet) {
  const OpcodeInfo& info = *packet.opcode;
  const Tied held = state_.message == InboundMessage::kSend ? Tied::kYes : Tied::kNo;
  if (!follows(info, InboundMessage::kSend) || info.has(kIethFlag) || !length_fits(packet)) {
    return refuse(NakCode::kInvalidRequest, CompletionStatus::kRemoteInvalidRequestError, held);
  }
  if (info.starts_message()) {
    if (!receive_available()) return owe(Reply::kRnrNak);
    state_.message = InboundMessage::kSend;
    state_.received = 0;
    state_.scatter = {};
  }
  const ReceiveWqe& wqe = qp_.receive_queue().at(state_.receive_index);
  const auto length = static_cast<uint32_t>(packet.payload.size());
  if (length > wqe.length - state_.received) {
    return refuse(NakCode::kInvalidRequest, CompletionStatus::kLocalLengthError, Tied::kYes);
  }
  const SgeList list{engine_.regions, pd(), wqe.sges()};
  if (!scatter(list, state_.scatter, packet.payload)) {
    return refuse(NakCode::kRemoteOperationalError, CompletionStatus::kLocalProtectionError,
                  Tied::kYes);
  }
  state_.received += length;
  accept(1, packet.bth.ack_request);
  if (!info.ends_message()) return;
  state_.message = InboundMessage::kNone;
  state_.msn = (state_.msn + 1) & Psn::kMask;
  complete_receive(qp_, {.opcode = CompletionOpcode::kRecv,
                         .byte_length = state_.received,
                         .with_immediate = info.has(kImmediateFlag),
                         .immediate = packet.immediate,
                         .solicited = packet.bth.solicited});
}

void RcResponder::on_write(const PacketView& packet) {
  const OpcodeInfo& info = *packet.opcode;
  const Tied held = state_.message == InboundMessage::kSend ? Tied::kYes : Tied::kNo;
  if (!follows(info, InboundMessage::kWrite) || !length_fits(packet)) {
    return refuse(NakCode::kInvalidRequest, CompletionStatus::kRemoteInvalidRequestError, held);
  }
  const bool immediate = info.has(kImmediateFlag);
  if (immediate && !receive_available()) return owe(Reply::kRnrNak);
  if (info.starts_message() && !begin_write(packet)) return;

  const auto length = static_cast<uint32_t>(packet.payload.size());
  const uint32_t end = state_.received + length;
  const Tied tied = immediate ? Tied::kYes : Tied::kNo;
  if (info.ends_message() ? end != state_.write_length : end >= state_.write_length) {
    return refuse(NakCode::kInvalidRequest, CompletionStatus::kRemoteInvalidRequestError, tied);
  }
  if (length != 0) {
    const MemoryGrant grant = engine_.regions.check_remote(
        state_.write_rkey, pd(), {state_.write_address + state_.received, length}, kRemoteWrite);
    if (!grant.ok()) {
      return refuse(NakCode::kRemoteAccessError, CompletionStatus::kLocalAccessError, tied);
    }
    if (!place(grant.address, packet.payload)) {
      return refuse(NakCode::kRemoteOperationalError, CompletionStatus::kLocalAccessError, tied);
    }
  }
  state_.received = end;
  accept(1, packet.bth.ack_request);
  if (!info.ends_message()) return;
  ++engine_.counters.rx_write_requests;
  state_.message = InboundMessage::kNone;
  state_.msn = (state_.msn + 1) & Psn::kMask;
  if (!immediate) return;
  complete_receive(qp_, {.opcode = CompletionOpcode::kRecvRdmaWithImm,
                         .byte_length = state_.write_length,
                         .with_immediate = true,
                         .immediate = packet.immediate,
                         .solicited = packet.bth.solicited});
}

// The first packet of a WRITE: its rights over the whole range. False if it was refused.
bool RcResponder::begin_write(const PacketView& packet) {
  const Reth& reth = packet.reth;
  const Tied tied = packet.opcode->has(kImmediateFlag) ? Tied::kYes : Tied::kNo;
  if ((qp_.connection.access & kRemoteWrite) == 0 || reth.dma_length > kMaxMessageBytes) {
    refuse(NakCode::kInvalidRequest, CompletionStatus::kRemoteInvalidRequestError, tied);
    return false;
  }
  // A WRITE of nothing needs no rights (IBTA C9-88).
  if (reth.dma_length != 0 &&
      !engine_.regions
           .check_remote(reth.rkey, pd(), {reth.virtual_address, reth.dma_length}, kRemoteWrite)
           .ok()) {
    refuse(NakCode::kRemoteAccessError, CompletionStatus::kLocalAccessError, tied);
    return false;
  }
  state_.message = InboundMessage::kWrite;
  state_.received = 0;
  state_.write_address = reth.virtual_address;
  state_.write_rkey = reth.rkey;
  state_.write_length = reth.dma_length;
  return true;
}

void RcResponder::on_read(const PacketView& packet) {
  const Reth& reth = packet.reth;
  FetchResource* resource = free_resource();
  if (state_.message != InboundMessage::kNone || (qp_.connection.access & kRemoteRead) == 0 ||
      reth.dma_length > kMaxMessageBytes || resource == nullptr) {
    return refuse(NakCode::kInvalidRequest);
  }
  if (reth.dma_length != 0 &&
      !engine_.regions
           .check_remote(reth.rkey, pd(), {reth.virtual_address, reth.dma_length}, kRemoteRead)
           .ok()) {
    return refuse(NakCode::kRemoteAccessError);
  }
  ++engine_.counters.rx_read_requests;
  state_.msn = (state_.msn + 1) & Psn::kMask;  // when it executes (IBTA C9-148)
  const uint32_t packets = qp_.connection.packets_of(reth.dma_length);
  resource->first_psn = packet.bth.psn;
  resource->end_psn = packet.bth.psn + packets;
  resource->atomic = false;
  resource->msn = state_.msn;
  resource->address = reth.virtual_address;
  resource->rkey = reth.rkey;
  resource->length = reth.dma_length;
  resource->cursor_psn = packet.bth.psn;
  resource->cursor_remaining = reth.dma_length;
  resource->cursor_address = reth.virtual_address;
  accept(packets, false);
  answer(*resource);
}

void RcResponder::on_atomic(const PacketView& packet) {
  const AtomicEth& request = packet.atomic_eth;
  FetchResource* resource = free_resource();
  if (state_.message != InboundMessage::kNone || (qp_.connection.access & kRemoteAtomic) == 0 ||
      resource == nullptr || request.virtual_address % sizeof(uint64_t) != 0) {
    return refuse(NakCode::kInvalidRequest);
  }
  const MemoryGrant grant = engine_.regions.check_remote(
      request.rkey, pd(), {request.virtual_address, sizeof(uint64_t)}, kRemoteAtomic);
  if (!grant.ok()) return refuse(NakCode::kRemoteAccessError);
  // A region's own address may be odd though the address that names it is not (zero-based, iova).
  if (reinterpret_cast<uintptr_t>(grant.address) % sizeof(uint64_t) != 0) {
    return refuse(NakCode::kInvalidRequest);
  }
  execute_atomic(packet, *resource, grant.address);
}

void RcResponder::execute_atomic(const PacketView& packet, FetchResource& resource,
                                 std::byte* word) {
  const AtomicEth& request = packet.atomic_eth;
  const AtomicResult result =
      packet.opcode->operation == Operation::kCompareSwap
          ? compare_and_swap(word, {.compare = request.compare, .swap = request.swap_add})
          : fetch_and_add(word, request.swap_add);
  if (!result.ok) return refuse(NakCode::kRemoteOperationalError);
  ++engine_.counters.rx_atomic_requests;
  state_.msn = (state_.msn + 1) & Psn::kMask;
  resource.first_psn = packet.bth.psn;
  resource.end_psn = packet.bth.psn + 1;
  resource.atomic = true;
  resource.msn = state_.msn;
  resource.address = result.original;
  resource.cursor_psn = packet.bth.psn;
  accept(1, false);
  answer(resource);
}

// Whether a packet of `kind` may come now (IBTA 9.7.4.1.2).
bool RcResponder::follows(const OpcodeInfo& info, InboundMessage kind) const {
  return state_.message == (info.starts_message() ? InboundMessage::kNone : kind);
}

// FIRST and MIDDLE fill the path MTU, LAST has 1 to MTU bytes, ONLY 0 to MTU (IBTA C9-92).
bool RcResponder::length_fits(const PacketView& packet) const {
  const size_t length = packet.payload.size();
  const uint32_t mtu = qp_.connection.mtu;
  switch (packet.opcode->position) {
    case Position::kFirst:
    case Position::kMiddle:
      return length == mtu;
    case Position::kLast:
      return length != 0 && length <= mtu;
    case Position::kOnly:
      return length <= mtu;
  }
  return false;
}

bool RcResponder::receive_available() const {
  return state_.receive_index != qp_.receive_queue().ring.posted();
}

// The place for one more READ or ATOMIC: the oldest one's when all are used. Null if that has never
// been answered: the peer exceeds max_dest_rd_atomic.
FetchResource* RcResponder::free_resource() {
  const uint8_t limit = qp_.connection.max_dest_rd_atomic;
  if (limit == 0) return nullptr;
  FetchResource& resource = state_.resources[state_.resource_next];
  if (state_.resource_count == limit && resource.pending) {
    if (!resource.answered) return nullptr;
    // A duplicate asked for the answer again; the peer has had it since, or it would not go on.
    finish(resource);
  }
  return &resource;
}

// The resource just filled becomes the newest, with a response to send.
void RcResponder::answer(FetchResource& resource) {
  const uint8_t limit = qp_.connection.max_dest_rd_atomic;
  resource.pending = true;
  resource.begun = false;
  resource.answered = false;
  ++state_.pending;
  state_.resource_next = static_cast<uint8_t>((state_.resource_next + 1) % limit);
  if (state_.resource_count < limit) ++state_.resource_count;
  // Its response acknowledges what came before.
  if (state_.reply == Reply::kAck) state_.reply = Reply::kNone;
  engine_.replies.push(qp_);
}

void RcResponder::accept(uint32_t packets, bool acknowledge) {
  state_.expected_psn = state_.expected_psn + packets;
  state_.silent = false;
  if (state_.reply == Reply::kRnrNak) {
    // The packet came again, and a receive with it, before the RNR NAK left; yet packets behind it
    // may have been dropped meanwhile.
    state_.reply = Reply::kSequenceNak;
  } else if (acknowledge && state_.reply == Reply::kNone) {
    owe(Reply::kAck);
  }
}

void RcResponder::owe(Reply reply) {
  if (reply == Reply::kRnrNak) state_.silent = true;
  // A NAK that has not left yet tells as much as an acknowledgement would, and stays.
  if (state_.reply == Reply::kNone || state_.reply == Reply::kAck || reply == Reply::kRnrNak) {
    state_.reply = reply;
  }
  engine_.replies.push(qp_);
}

// The request at expected_psn is refused for good: NAK, the receive WQE or an event, ERROR.
void RcResponder::refuse(NakCode code, CompletionStatus status, Tied tied) {
  if (code == NakCode::kRemoteAccessError) ++engine_.counters.resp_remote_access_errors;
  state_.reply = Reply::kFatalNak;
  state_.nak_syndrome = nak_syndrome(code);
  state_.nak_psn = state_.expected_psn;
  engine_.replies.push(qp_);
  if (tied == Tied::kYes) {
    complete_receive(qp_, {.status = status});
  } else {
    // IBTA C9-222.1.1: no receive WQE tells the consumer, so an event does.
    const AsyncEventType event = code == NakCode::kRemoteAccessError
                                     ? AsyncEventType::kQpAccessError
                                     : AsyncEventType::kQpRequestError;
    engine_.events.on_async_event(event, qp_.owner());
  }
  enter_error(engine_, qp_);
}

}  // namespace uroce::transport
