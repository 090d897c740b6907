// Draws work requests over all operations, lengths, lists and flags, and posts them.
#include "tools/sim/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace uroce::sim {

using transport::PostError;
using transport::SendOpcode;

namespace {

constexpr uint32_t kShortCapacity = 8;  // bytes of a receive that is too small

uint64_t wr_id_of(const Endpoint& end, bool receive, size_t index) {
  return uint64_t{receive} << 63 | uint64_t{end.id} << 48 | uint64_t{end.incarnation} << 40 | index;
}

bool is_receive_fault(Fault fault) {
  return fault == Fault::kShortReceive || fault == Fault::kBadReceiveLkey;
}

// The fault that the plan has for the operation that end posts next, other than of receives.
bool fault_is_due(const Endpoint& end) {
  return end.incarnation == 0 && end.plan->fault != Fault::kNone &&
         !is_receive_fault(end.plan->fault) && end.flow.operations.size() == end.plan->fault_at;
}

// The fault of the receive that the next message of `end` consumes.
Fault receive_fault_due(const Endpoint& end) {
  const EndpointPlan& responder = *end.peer->plan;
  const bool due = end.incarnation == 0 && is_receive_fault(responder.fault) &&
                   end.flow.consumers.size() == responder.fault_at;
  return due ? responder.fault : Fault::kNone;
}

}  // namespace

void Workload::draw_kind(Endpoint& end, Operation& operation) {
  Random& random = end.random;
  static constexpr SendOpcode kOpcodes[] = {SendOpcode::kRdmaWrite,
                                            SendOpcode::kRdmaWrite,
                                            SendOpcode::kRdmaWriteWithImm,
                                            SendOpcode::kSend,
                                            SendOpcode::kSend,
                                            SendOpcode::kSendWithImm,
                                            SendOpcode::kRdmaRead,
                                            SendOpcode::kRdmaRead,
                                            SendOpcode::kAtomicCmpAndSwp,
                                            SendOpcode::kAtomicFetchAndAdd};
  operation.opcode = kOpcodes[random.below(std::size(kOpcodes))];
  if (fault_is_due(end)) {
    operation.fault = end.plan->fault;
    if (operation.fault == Fault::kUnaligned) operation.opcode = SendOpcode::kAtomicFetchAndAdd;
    if (operation.is_send() && operation.fault != Fault::kBadLkey) {
      operation.opcode = SendOpcode::kRdmaWrite;
    }
    if (operation.is_read() && operation.fault == Fault::kNoPermission) {
      operation.opcode = SendOpcode::kRdmaWrite;  // the region that is used may be read
    }
  } else if (operation.consumes_receive() && receive_fault_due(end) != Fault::kNone) {
    operation.opcode = random.coin() ? SendOpcode::kSend : SendOpcode::kSendWithImm;
    operation.fault = receive_fault_due(end);
  }
}

void Workload::draw_length(Endpoint& end, Operation& operation) {
  Random& random = end.random;
  const uint32_t mtu = bytes_of(end.connection->mtu);
  if (operation.is_atomic()) {
    operation.length = 8;
    return;
  }
  switch (random.below(6)) {
    case 0:
      operation.length = static_cast<uint32_t>(random.below(3));
      break;
    case 1:  // around one packet
      operation.length = static_cast<uint32_t>(random.between(mtu - 2, mtu + 2));
      break;
    case 2:  // around several
      operation.length =
          static_cast<uint32_t>(mtu * random.between(1, 8) + random.between(0, 2) - 1);
      break;
    case 3:
      operation.length = static_cast<uint32_t>(random.below(300));
      break;
    default:
      operation.length = static_cast<uint32_t>(random.below(end.connection->max_length + 1));
      break;
  }
  uint32_t most = end.connection->max_length;
  if (operation.fault == Fault::kShortReceive) {
    operation.length = std::max(operation.length, kShortCapacity + 1);
  } else if (operation.is_send() && end.flow.consumers.size() < end.peer->receives.size()) {
    most = std::min(most, end.peer->receives[end.flow.consumers.size()].capacity);
  }
  operation.length = std::min(operation.length, most);
  if (operation.fault != Fault::kNone) operation.length = std::max(operation.length, 1u);
}

void Workload::draw_flags(Endpoint& end, Operation& operation, bool last) {
  Random& random = end.random;
  // Of a queue full of unsignaled operations neither slot nor buffer would ever be freed. An
  // unsignaled end is legal: nobody hears of it, but it is executed all the same.
  const bool must = (last && random.chance(80 * kPercent)) || end.unsignaled >= 3 ||
                    2 * (end.unsignaled + 1) >= end.granted.max_send_wr;
  if (must || random.chance(60 * kPercent)) operation.flags |= transport::kSignaled;
  if (random.chance(10 * kPercent)) operation.flags |= transport::kFence;
  if (random.chance(20 * kPercent)) operation.flags |= transport::kSolicited;
  operation.signaled = end.plan->signal_all || (operation.flags & transport::kSignaled) != 0;
  if (!operation.is_read() && !operation.is_atomic() && operation.fault != Fault::kBadLkey &&
      operation.length <= end.granted.max_inline_data && random.coin()) {
    operation.flags |= transport::kInline;
  }
}

void Workload::aim(Endpoint& end, Operation& operation) {
  Random& random = end.random;
  Endpoint& peer = *end.peer;
  if (operation.is_atomic()) {
    operation.word = random.below(kSharedWords);
    operation.remote_offset = peer.words.offset + operation.word * 8;
    operation.remote_address = peer.words.address + operation.word * 8;
    operation.rkey = peer.words.rkey;
    operation.compare_add = random.next();
    if (operation.opcode == SendOpcode::kAtomicCmpAndSwp) {
      operation.swap = random.next();
      // A guess that is right unless somebody else comes first.
      if (random.coin()) {
        std::memcpy(&operation.compare_add, peer.memory->at(operation.remote_offset), 8);
      }
    }
  } else if (operation.length > 0) {
    const uint64_t at = random.below(peer.target.length - operation.length + 1);
    operation.remote_offset = peer.target.offset + at;
    operation.remote_address = peer.target.address + at;
    operation.rkey = peer.target.rkey;
  } else {
    // A zero-length READ or WRITE ignores key and address (C9-88).
    operation.remote_offset = peer.target.offset;
    operation.remote_address = random.next();
    operation.rkey = Rkey{static_cast<uint32_t>(random.next())};
  }
}

// Gives the operation what its fault needs; aim has chosen a legal range.
void Workload::spoil(Endpoint& end, Operation& operation) {
  Endpoint& peer = *end.peer;
  const auto move_to = [&](const Window& window) {
    operation.rkey = window.rkey;
    operation.remote_address = window.address;
    operation.length = std::min<uint32_t>(operation.length, 128);
  };
  switch (operation.fault) {
    case Fault::kBadRkey:
      operation.rkey = Rkey{operation.rkey.value ^ 0x5a};
      break;
    case Fault::kOutOfBounds: {
      const Window& window = operation.is_atomic() ? peer.words : peer.target;
      operation.remote_address =
          window.address + window.length - (operation.is_atomic() ? 0 : operation.length - 1);
      break;
    }
    case Fault::kNoPermission:
      move_to(peer.read_only);
      break;
    case Fault::kForeignDomain:
      move_to(peer.foreign);
      break;
    case Fault::kUnaligned:
      operation.remote_address += end.random.between(1, 7) - (operation.word > 0 ? 8 : 0);
      break;
    case Fault::kNone:
    case Fault::kBadLkey:
    case Fault::kShortReceive:
    case Fault::kBadReceiveLkey:
      break;
  }
}

Operation Workload::draw_operation(Endpoint& end) {
  Operation operation;
  operation.wr_id = wr_id_of(end, false, end.flow.operations.size());
  operation.immediate = static_cast<uint32_t>(end.random.next());
  draw_kind(end, operation);
  draw_length(end, operation);
  aim(end, operation);
  spoil(end, operation);
  return operation;
}

std::optional<std::vector<Piece>> Workload::draw_pieces(Endpoint& end, uint32_t length,
                                                        uint32_t max_pieces) {
  Random& random = end.random;
  const auto count = static_cast<uint32_t>(length == 0 ? random.below(std::min(max_pieces, 2u) + 1)
                                                       : random.between(1, max_pieces));
  std::vector<Piece> pieces;
  for (uint32_t i = 0; i < count; ++i) {
    Piece piece;
    piece.length = i + 1 == count ? length : static_cast<uint32_t>(random.below(length + 1));
    length -= piece.length;
    piece.pool = random.below(end.pools.size());
    const uint64_t alignment = random.coin() ? 1 : 8;
    const auto at = end.pools[piece.pool].pool.allocate(piece.length, alignment);
    if (!at) {
      give_back(end, pieces);
      return std::nullopt;
    }
    piece.offset = *at;
    pieces.push_back(piece);
  }
  return pieces;
}

std::vector<transport::Sge> Workload::scatter_list(const Endpoint& end,
                                                   const std::vector<Piece>& pieces) {
  std::vector<transport::Sge> list;
  for (const Piece& piece : pieces) {
    const BufferPool& pool = end.pools[piece.pool];
    list.push_back({pool.address + (piece.offset - pool.offset), piece.length, pool.lkey});
  }
  return list;
}

void Workload::judge_post(const Endpoint& end, PostError error, bool full, std::string_view queue) {
  const PostError expected = full ? PostError::kQueueFull : PostError::kNone;
  if (error != expected) {
    world_.verdict.violate(fmt::format("{}: post to a {} {} queue gave error {}", name_of(end),
                                       full ? "full" : "free", queue, static_cast<int>(error)));
  }
}

bool Workload::post_operation(Endpoint& end, bool last) {
  Operation operation = draw_operation(end);
  draw_flags(end, operation, last);
  const bool single = operation.is_atomic();
  auto pieces = draw_pieces(end, operation.length, single ? 1 : end.granted.max_send_sge);
  if (!pieces) return false;
  for (const Piece& piece : *pieces) {
    std::vector<std::byte> noise(piece.length);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(end.random.next());
    end.memory->store(piece.offset, noise);
  }
  if (!operation.is_read() && !operation.is_atomic()) {
    operation.payload = gather(*end.memory, *pieces);
  }
  auto list = scatter_list(end, *pieces);
  const bool inlined = (operation.flags & transport::kInline) != 0;
  for (transport::Sge& sge : list) {
    if (inlined) {  // the key is not looked at, the address is the application's own
      const Piece& piece = (*pieces)[static_cast<size_t>(&sge - list.data())];
      sge.address = reinterpret_cast<uint64_t>(end.memory->at(piece.offset));
      sge.lkey = Lkey{0xbad};
    } else if (operation.fault == Fault::kBadLkey) {
      sge.lkey = Lkey{sge.lkey.value ^ 0x5a};
    }
  }
  transport::SendRequest request;
  request.wr_id = operation.wr_id;
  request.sges = list;
  request.opcode = operation.opcode;
  request.flags = operation.flags;
  request.immediate = operation.immediate;
  request.remote_address = operation.remote_address;
  request.rkey = operation.rkey;
  request.compare_add = operation.compare_add;
  request.swap = operation.swap;
  const bool full = end.flow.operations.size() - end.flow.completed >= end.granted.max_send_wr;
  const PostError error = end.qp->post_send(request);
  std::fill(list.begin(), list.end(), transport::Sge{~0ull, ~0u, Lkey{~0u}});
  judge_post(end, error, full, "send");
  if (error != PostError::kNone) {
    give_back(end, *pieces);
    return false;
  }
  world_.note(fmt::format(
      "{} post {} wr_id {:#x} {} bytes, {} pieces, flags {}{}", name_of(end),
      name_of(operation.opcode), operation.wr_id, operation.length, pieces->size(), operation.flags,
      operation.fault == Fault::kNone ? "" : fmt::format(", fault: {}", name_of(operation.fault))));
  if (inlined) {
    give_back(end, *pieces);
  } else {
    operation.pieces = std::move(*pieces);
  }
  note_posted(end, std::move(operation));
  end.host->ring(*end.qp);
  return true;
}

bool Workload::post_receive(Endpoint& end) {
  Random& random = end.random;
  Receive receive;
  const size_t index = end.receives.size();
  receive.wr_id = wr_id_of(end, true, index);
  receive.capacity = static_cast<uint32_t>(random.below(end.connection->max_length + 1));
  if (end.incarnation == 0 && is_receive_fault(end.plan->fault) && index == end.plan->fault_at) {
    receive.fault = end.plan->fault;
    receive.capacity = std::max(receive.capacity, 1u);
  }
  const Flow& incoming = end.peer->flow;
  if (index < incoming.consumers.size()) {
    const Operation& message = incoming.operations[incoming.consumers[index]];
    if (message.is_send()) {
      receive.capacity =
          message.length + (random.coin() ? 0 : static_cast<uint32_t>(random.below(64)));
    }
  }
  if (receive.fault == Fault::kShortReceive) {
    receive.capacity = static_cast<uint32_t>(random.below(kShortCapacity + 1));
  }
  auto pieces = draw_pieces(end, receive.capacity, end.granted.max_recv_sge);
  if (!pieces) return false;
  auto list = scatter_list(end, *pieces);
  if (receive.fault == Fault::kBadReceiveLkey) {
    for (transport::Sge& sge : list) sge.lkey = Lkey{sge.lkey.value ^ 0x5a};
  }
  transport::ReceiveRequest request{receive.wr_id, list};
  const bool full = end.receives.size() - end.receives_completed >= end.granted.max_recv_wr;
  const PostError error = end.qp->post_recv(request);
  std::fill(list.begin(), list.end(), transport::Sge{~0ull, ~0u, Lkey{~0u}});
  judge_post(end, error, full, "receive");
  if (error != PostError::kNone) {
    give_back(end, *pieces);
    return false;
  }
  world_.note(fmt::format("{} post receive wr_id {:#x} {} bytes, {} pieces", name_of(end),
                          receive.wr_id, receive.capacity, pieces->size()));
  receive.pieces = std::move(*pieces);
  note_posted(end, std::move(receive));
  end.host->ring(*end.qp);
  return true;
}

}  // namespace uroce::sim
