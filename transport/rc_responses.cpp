// What the responder sends: responses to READs and ATOMICs, acknowledgements, and all of them again
// for duplicates.
#include <algorithm>

#include "transport/rc_responder.hpp"

namespace uroce::transport {

void RcResponder::on_duplicate(const PacketView& packet) {
  ++engine_.counters.duplicate_request;
  switch (packet.opcode->operation) {
    case Operation::kReadRequest:
      return on_duplicate_read(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return on_duplicate_atomic(packet);
    case Operation::kSend:
    case Operation::kWrite:
      return owe(Reply::kAck);  // again, with the newest PSN; never executed again (IBTA C9-105)
    case Operation::kNone:
    case Operation::kReadResponse:
    case Operation::kAcknowledge:
    case Operation::kAtomicAcknowledge:
    case Operation::kCnp:
      return engine_.drop(DropReason::kUnexpectedResponse);
  }
}

void RcResponder::on_duplicate_read(const PacketView& packet) {
  const Reth& reth = packet.reth;
  const Psn psn = packet.bth.psn;
  FetchResource* resource = resource_of(psn);
  // A part of the original range, of the same key, computed so that nothing overflows.
  if (resource == nullptr || resource->atomic || resource->rkey != reth.rkey) {
    return engine_.drop(DropReason::kDuplicateRejected);
  }
  const uint64_t offset = reth.virtual_address - resource->address;
  if (offset > resource->length || reth.dma_length > resource->length - offset ||
      static_cast<int64_t>(qp_.connection.packets_of(reth.dma_length)) > resource->end_psn - psn) {
    return engine_.drop(DropReason::kDuplicateRejected);
  }
  if (resource->pending) {
    // What has not been sent yet will come anyway.
    if (resource->cursor_psn - psn <= 0) return;
  } else {
    resource->pending = true;
    ++state_.pending;
  }
  resource->begun = false;
  resource->cursor_psn = psn;
  resource->cursor_address = reth.virtual_address;
  resource->cursor_remaining = reth.dma_length;
  engine_.replies.push(qp_);
}

void RcResponder::on_duplicate_atomic(const PacketView& packet) {
  FetchResource* resource = resource_of(packet.bth.psn);
  if (resource == nullptr || !resource->atomic) {
    return engine_.drop(DropReason::kDuplicateAtomicNotFound);
  }
  if (!resource->pending) {
    resource->pending = true;
    ++state_.pending;
  }
  engine_.replies.push(qp_);
}

FetchResource* RcResponder::resource_of(Psn psn) {
  for (uint32_t i = 0; i < state_.resource_count; ++i) {
    FetchResource& resource = state_.resources[i];
    if (psn - resource.first_psn >= 0 && psn - resource.end_psn < 0) return &resource;
  }
  return nullptr;
}

Turn RcResponder::poll_transmit(const TurnShare& share) {
  Turn turn;
  while (state_.pending != 0 || state_.reply != Reply::kNone) {
    if (turn.sent >= share.budget) {
      turn.end = TurnEnd::kBudget;
      return turn;
    }
    const Reply before = state_.reply;
    const bool sent =
        state_.pending != 0 ? send_response(share.sink, *oldest_pending()) : send_reply(share.sink);
    if (sent) {
      ++turn.sent;
    } else if (state_.reply == before) {
      turn.end = TurnEnd::kParked;
      return turn;
    }
  }
  return turn;
}

FetchResource* RcResponder::oldest_pending() {
  const uint8_t limit = qp_.connection.max_dest_rd_atomic;
  uint32_t index = state_.resource_count == limit ? state_.resource_next : 0u;
  while (!state_.resources[index].pending) index = (index + 1) % limit;
  return &state_.resources[index];
}

bool RcResponder::send_response(TransmitSink& sink, FetchResource& resource) {
  return resource.atomic ? send_atomic_response(sink, resource)
                         : send_read_response(sink, resource);
}

// False if the sink refused, or if the memory did: then a fatal NAK is owed instead.
bool RcResponder::send_read_response(TransmitSink& sink, FetchResource& resource) {
  const RcConnection& connection = qp_.connection;
  const uint32_t payload = std::min(resource.cursor_remaining, connection.mtu);
  if (!sink.can_send(connection.path, connection.remote_qpn, payload)) return false;
  OutgoingPacket& packet = engine_.packet;
  packet.segment_count = 0;
  if (payload != 0) {
    const MemoryGrant grant = engine_.regions.check_remote(
        resource.rkey, pd(), {resource.cursor_address, payload}, kRemoteRead);
    if (!grant.ok()) {
      revoke(resource);
      return false;
    }
    packet.segments[0] = {grant.address, payload};
    packet.segment_count = 1;
  }
  const bool first = !resource.begun;
  const bool last = resource.cursor_remaining <= connection.mtu;
  Bth bth;
  bth.opcode = first ? (last ? opcode::kReadResponseOnly : opcode::kReadResponseFirst)
                     : (last ? opcode::kReadResponseLast : opcode::kReadResponseMiddle);
  bth.pad_count = pad_for(payload);
  bth.destination_qpn = connection.remote_qpn;
  bth.psn = resource.cursor_psn;
  begin_headers(packet, bth);
  if (first || last) append(packet, Aeth{ack_syndrome(), resource.msn});
  send(sink, payload);

  resource.begun = true;
  resource.cursor_psn = resource.cursor_psn + 1;
  resource.cursor_address += payload;
  resource.cursor_remaining -= payload;
  if (last) finish(resource);
  return true;
}

bool RcResponder::send_atomic_response(TransmitSink& sink, FetchResource& resource) {
  const RcConnection& connection = qp_.connection;
  if (!sink.can_send(connection.path, connection.remote_qpn, 0)) return false;
  OutgoingPacket& packet = engine_.packet;
  packet.segment_count = 0;
  Bth bth;
  bth.opcode = opcode::kAtomicAcknowledge;
  bth.destination_qpn = connection.remote_qpn;
  bth.psn = resource.first_psn;
  begin_headers(packet, bth);
  append(packet, Aeth{ack_syndrome(), resource.msn});
  append(packet, AtomicAckEth{resource.address});
  send(sink, 0);
  finish(resource);
  return true;
}

// The region of a READ that is being answered went away: a NAK in place of data (PROTOCOL.md 20).
// A READ that had been answered before is dropped instead: a late copy on the wire must not end a
// connection whose consumer took its memory back after the READ.
void RcResponder::revoke(FetchResource& resource) {
  if (resource.answered) {
    finish(resource);
    return engine_.drop(DropReason::kDuplicateRejected);
  }
  const Psn psn = resource.cursor_psn;
  for (FetchResource& each : state_.resources) each.pending = false;
  state_.pending = 0;
  if (qp_.state() == QpState::kError) return;  // the NAK of what came later is owed already
  refuse(NakCode::kRemoteAccessError);
  state_.nak_psn = psn;
}

bool RcResponder::send_reply(TransmitSink& sink) {
  const RcConnection& connection = qp_.connection;
  if (!sink.can_send(connection.path, connection.remote_qpn, 0)) return false;
  Bth bth;
  bth.opcode = opcode::kAcknowledge;
  bth.destination_qpn = connection.remote_qpn;
  bth.psn = state_.expected_psn;
  Aeth aeth{0, state_.msn};
  switch (state_.reply) {
    case Reply::kNone:
      return true;
    case Reply::kAck:
      bth.psn = state_.expected_psn + Psn::kMask;  // the newest in order
      aeth.syndrome = ack_syndrome();
      ++engine_.counters.tx_acks;
      break;
    case Reply::kSequenceNak:
      aeth.syndrome = nak_syndrome(NakCode::kSequenceError);
      state_.silent = true;
      ++engine_.counters.tx_naks;
      break;
    case Reply::kRnrNak:
      aeth.syndrome = rnr_nak_syndrome(connection.min_rnr_timer);
      ++engine_.counters.tx_rnr_naks;
      break;
    case Reply::kFatalNak:
      bth.psn = state_.nak_psn;
      aeth.syndrome = state_.nak_syndrome;
      ++engine_.counters.tx_naks;
      break;
  }
  state_.reply = Reply::kNone;
  engine_.packet.segment_count = 0;
  begin_headers(engine_.packet, bth);
  append(engine_.packet, aeth);
  send(sink, 0);
  return true;
}

void RcResponder::send(TransmitSink& sink, uint32_t payload) {
  OutgoingPacket& packet = engine_.packet;
  packet.path = qp_.connection.path;
  packet.source_qpn = qp_.qpn();
  packet.payload_length = payload;
  ++engine_.counters.tx_packets;
  engine_.counters.tx_bytes += payload;
  sink.send(packet);
}

void RcResponder::finish(FetchResource& resource) {
  resource.pending = false;
  resource.answered = true;
  --state_.pending;
}

}  // namespace uroce::transport
