// Keeps the reference model up to date as work is posted, executed and given up.
#include "tools/sim/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace uroce::sim {

using transport::CompletionStatus;

const Operation* Flow::operation_at(uint32_t distance) const {
  if (distance >= packets) return nullptr;
  const auto after =
      std::upper_bound(operations.begin(), operations.end(), distance,
                       [](uint32_t d, const Operation& op) { return d < op.first_packet; });
  return &*std::prev(after);
}

size_t Flow::index_of(const Operation& operation) const {
  const auto at = std::lower_bound(
      operations.begin(), operations.end(), operation.first_packet,
      [](const Operation& op, uint32_t distance) { return op.first_packet < distance; });
  return static_cast<size_t>(at - operations.begin());
}

uint32_t WireHistory::messages_before(int64_t distance) const {
  return static_cast<uint32_t>(
      std::upper_bound(message_ends.begin(), message_ends.end(), distance) - message_ends.begin());
}

uint32_t WireHistory::end_of_message(uint32_t distance) const {
  const auto end = std::upper_bound(message_ends.begin(), message_ends.end(), distance);
  return end == message_ends.end() ? 0 : *end;
}

uint32_t Flow::completed_packets() const {
  return completed < operations.size() ? operations[completed].first_packet : packets;
}

namespace {

// Once both are known: the message will appear in the buffers, up to their end.
void pair(Endpoint& responder, Receive& receive, const Operation& message) {
  receive.message = &message;
  if (!message.is_send()) return;
  uint32_t done = 0;
  for (Piece& piece : receive.pieces) {
    const uint32_t part = std::min(piece.length, message.length - done);
    if (part == 0) continue;
    piece.effect = responder.memory->expect(piece.offset, part, message.payload.data() + done);
    done += part;
  }
}

}  // namespace

void note_posted(Endpoint& end, Operation operation) {
  const uint32_t mtu = bytes_of(end.connection->mtu);
  operation.first_packet = end.flow.packets;
  operation.packets = operation.is_atomic() ? 1 : std::max(1u, (operation.length + mtu - 1) / mtu);
  end.flow.packets += operation.packets;
  end.wire.sent.resize(end.flow.packets);
  end.unsignaled = operation.signaled ? 0 : end.unsignaled + 1;
  ++end.operations_posted;
  if (operation.consumes_receive()) {
    operation.receive = end.flow.consumers.size();
    end.flow.consumers.push_back(end.flow.operations.size());
  }
  end.flow.operations.push_back(std::move(operation));
  Operation& posted = end.flow.operations.back();

  if (posted.is_write() && posted.fault == Fault::kNone && posted.length > 0) {
    posted.effect =
        end.peer->memory->expect(posted.remote_offset, posted.length, posted.payload.data());
  }
  if (posted.is_read() || posted.is_atomic()) {
    for (Piece& piece : posted.pieces) {
      piece.effect = end.memory->expect(piece.offset, piece.length, nullptr);
    }
  }
  if (posted.receive && *posted.receive < end.peer->receives.size()) {
    pair(*end.peer, end.peer->receives[*posted.receive], posted);
  }
}

void note_posted(Endpoint& end, Receive receive) {
  const size_t index = end.receives.size();
  end.receives.push_back(std::move(receive));
  const Flow& incoming = end.peer->flow;
  if (index < incoming.consumers.size()) {
    pair(end, end.receives.back(), incoming.operations[incoming.consumers[index]]);
  }
}

void note_executed(Endpoint& end, size_t count, Verdict& verdict) {
  Flow& flow = end.flow;
  for (; flow.executed < count; ++flow.executed) {
    Operation& operation = flow.operations[flow.executed];
    if (operation.fault != Fault::kNone) {
      verdict.violate(fmt::format("{}: operation {} ({}) had to fail, yet a later one succeeded",
                                  name_of(end), flow.executed, name_of(operation.fault)));
    }
    if (operation.is_write()) {
      end.peer->memory->commit(std::exchange(operation.effect, Memory::kNoEffect));
    } else if (operation.is_read()) {
      const auto now = end.peer->memory->believed(operation.remote_offset, operation.length);
      operation.at_its_turn.assign(now.begin(), now.end());
    }
  }
}

void settle(Endpoint& end, Verdict& verdict) {
  const auto settle_in = [&](Memory& memory, Memory::EffectId& effect) {
    if (const auto why = memory.settle(std::exchange(effect, Memory::kNoEffect))) {
      verdict.violate(fmt::format("{}: {}", name_of(end), *why));
    }
  };
  for (Operation& operation : end.flow.operations) {
    settle_in(*end.peer->memory, operation.effect);
    for (Piece& piece : operation.pieces) settle_in(*end.memory, piece.effect);
    give_back(end, operation.pieces);
  }
  for (Receive& receive : end.receives) {
    for (Piece& piece : receive.pieces) settle_in(*end.memory, piece.effect);
    give_back(end, receive.pieces);
  }
}

std::vector<std::byte> gather(const Memory& memory, const std::vector<Piece>& pieces) {
  std::vector<std::byte> bytes;
  for (const Piece& piece : pieces) {
    const auto part = memory.real(piece.offset, piece.length);
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

void give_back(Endpoint& end, std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    assert(piece.effect == Memory::kNoEffect);
    std::vector<std::byte> noise(piece.length);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(end.random.next());
    end.memory->store(piece.offset, noise);
    end.pools[piece.pool].pool.release(piece.offset);
  }
  pieces.clear();
}

std::string name_of(const Endpoint& end) {
  return fmt::format("end {} (host {}, qp {:#08x})", end.id, end.host->index(), end.qpn.value);
}

CompletionStatus status_of(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return CompletionStatus::kSuccess;
    case Fault::kBadRkey:
    case Fault::kOutOfBounds:
    case Fault::kNoPermission:
    case Fault::kForeignDomain:
      return CompletionStatus::kRemoteAccessError;
    case Fault::kUnaligned:
    case Fault::kShortReceive:
      return CompletionStatus::kRemoteInvalidRequestError;
    case Fault::kBadLkey:
      return CompletionStatus::kLocalProtectionError;
    case Fault::kBadReceiveLkey:
      return CompletionStatus::kRemoteOperationError;
  }
  return CompletionStatus::kGeneralError;
}

bool is_responder_fault(Fault fault) {
  return fault != Fault::kNone && fault != Fault::kBadLkey;
}

}  // namespace uroce::sim
