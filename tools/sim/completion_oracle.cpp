// Send completions: order, status, and the data that success stands for.
#include "tools/sim/completion_oracle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tools/sim/transcript.hpp"
#include "tools/sim/wire_oracle.hpp"

namespace uroce::sim {

using transport::Completion;
using transport::CompletionOpcode;
using transport::CompletionStatus;
using transport::SendOpcode;

namespace {

CompletionOpcode completion_opcode(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kRdmaWrite:
    case SendOpcode::kRdmaWriteWithImm:
      return CompletionOpcode::kRdmaWrite;
    case SendOpcode::kSend:
    case SendOpcode::kSendWithImm:
      return CompletionOpcode::kSend;
    case SendOpcode::kRdmaRead:
      return CompletionOpcode::kRdmaRead;
    case SendOpcode::kAtomicCmpAndSwp:
      return CompletionOpcode::kCompSwap;
    case SendOpcode::kAtomicFetchAndAdd:
      return CompletionOpcode::kFetchAdd;
  }
  return CompletionOpcode::kSend;
}

void forget_pieces(Endpoint& end, std::vector<Piece>& pieces) {
  for (Piece& piece : pieces) {
    end.memory->commit(std::exchange(piece.effect, Memory::kNoEffect));
  }
  give_back(end, pieces);
}

}  // namespace

void CompletionOracle::blame(const Endpoint& end, const Completion& completion,
                             std::string_view what) {
  verdict_.violate(fmt::format("{}: {}: {}", name_of(end), describe(completion), what));
}

void CompletionOracle::check(const Endpoint& end, const Memory& memory, uint64_t offset,
                             uint64_t length, std::string_view what) {
  if (const auto why = memory.check(offset, length)) {
    verdict_.violate(fmt::format("{}: {}: {}", name_of(end), what, *why));
  }
}

void CompletionOracle::on_send_completion(Endpoint& end, const Completion& completion,
                                          AtomicLedgers& peer_words) {
  Flow& flow = end.flow;
  if (end.forgotten) {
    blame(end, completion, "the queue pair was destroyed or reset");
    return;
  }
  // The completion is the next signaled operation's, or an earlier unsignaled one's that failed.
  const bool success = completion.status == CompletionStatus::kSuccess;
  size_t index = flow.completed;
  while (index < flow.operations.size() && !flow.operations[index].signaled &&
         (success || flow.operations[index].wr_id != completion.wr_id)) {
    ++index;
  }
  if (index == flow.operations.size()) {
    blame(end, completion, "no operation awaits a completion");
    return;
  }
  Operation& operation = flow.operations[index];
  if (operation.wr_id != completion.wr_id) {
    blame(end, completion, fmt::format("the next in order is wr_id {:#x}", operation.wr_id));
    return;
  }
  if (flow.failed && (success || index != flow.completed)) {
    blame(end, completion, "after an error every operation is flushed, in order");
    return;
  }
  note_executed(end, success ? index + 1 : flow.failed ? flow.executed : index, verdict_);
  for (; flow.completed < index; ++flow.completed) {
    succeed(end, flow.operations[flow.completed], peer_words);
  }
  ++flow.completed;
  if (success) {
    judge_send_success(end, operation, completion);
    succeed(end, operation, peer_words);
  } else {
    judge_send_failure(end, operation, completion);
    flow.failed = true;
    forget_pieces(end, operation.pieces);
  }
}

void CompletionOracle::judge_send_success(const Endpoint& end, const Operation& operation,
                                          const Completion& completion) {
  if (completion.opcode != completion_opcode(operation.opcode)) {
    blame(end, completion, "wrong opcode");
  }
  if (completion.qpn != end.qpn) blame(end, completion, "wrong queue pair number");
  if ((operation.is_read() || operation.is_atomic()) &&
      completion.byte_length != operation.length) {
    blame(end, completion, fmt::format("byte_len must be {}", operation.length));
  }
}

void CompletionOracle::judge_send_failure(Endpoint& end, const Operation& operation,
                                          const Completion& completion) {
  const CompletionStatus status = completion.status;
  if (status == CompletionStatus::kWrFlushError) {
    if (end.qp->state() != transport::QpState::kError) {
      blame(end, completion, "flushed though the queue pair is not in ERROR");
    }
    return;
  }
  if (end.flow.failed) {
    blame(end, completion, "only the first failure has a status of its own");
    return;
  }
  end.failure = status;
  if (operation.fault != Fault::kNone && status == status_of(operation.fault)) return;
  if (status == CompletionStatus::kRetryExceededError && retries_exhausted(end)) return;
  if (status == CompletionStatus::kRnrRetryExceededError && rnr_retries_exhausted(end)) return;
  blame(end, completion,
        fmt::format("nothing explains this failure of a {} (fault: {})", name_of(operation.opcode),
                    name_of(operation.fault)));
}

void CompletionOracle::succeed(Endpoint& end, Operation& operation, AtomicLedgers& peer_words) {
  operation.succeeded = true;
  if (operation.is_read()) judge_read(end, operation);
  if (operation.is_atomic()) {
    const auto result = gather(*end.memory, operation.pieces);
    AtomicLedger::Entry entry;
    entry.requester = end.id << 8 | end.incarnation;
    entry.is_swap = operation.opcode == SendOpcode::kAtomicCmpAndSwp;
    entry.compare_add = operation.compare_add;
    entry.swap = operation.swap;
    uint64_t original = 0;
    std::memcpy(&original, result.data(), std::min(result.size(), sizeof original));
    entry.original = original;
    peer_words[operation.word].add(entry);
  }
  if (operation.is_write()) {
    check(end, *end.peer->memory, operation.remote_offset, operation.length,
          "a completed WRITE is not visible");
  }
  if (operation.consumes_receive()) judge_delivery(end, operation);
  forget_pieces(end, operation.pieces);
}

// The responder had a receive for it, and the message is there already.
void CompletionOracle::judge_delivery(Endpoint& end, const Operation& operation) {
  const Endpoint& peer = *end.peer;
  if (*operation.receive >= peer.receives.size()) {
    verdict_.violate(fmt::format("{}: wr_id {:#x} succeeded though its receive was never posted",
                                 name_of(end), operation.wr_id));
    return;
  }
  const Receive& receive = peer.receives[*operation.receive];
  if (receive.completed || receive.pieces.empty() || !operation.is_send()) return;
  const auto bytes = gather(*peer.memory, receive.pieces);
  if (bytes.size() < operation.length ||
      !std::equal(operation.payload.begin(), operation.payload.end(), bytes.begin())) {
    verdict_.violate(fmt::format("{}: wr_id {:#x} succeeded, the message is not in its buffer",
                                 name_of(end), operation.wr_id));
  }
}

// Each byte is what the READ found at its turn, or what a later WRITE of the same flow put there:
// a READ that is retried is executed again (IBTA 9.7.5.1.5), and only a fence would have held the
// WRITE back.
void CompletionOracle::judge_read(Endpoint& end, const Operation& operation) {
  const auto bytes = gather(*end.memory, operation.pieces);
  if (bytes.size() != operation.at_its_turn.size()) return;  // a fault, blamed already
  const auto& operations = end.flow.operations;
  const size_t first_later = end.flow.index_of(operation) + 1;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == operation.at_its_turn[i]) continue;
    bool explained = false;
    for (size_t j = first_later; j < operations.size() && !explained; ++j) {
      const Operation& later = operations[j];
      if ((later.flags & transport::kFence) != 0) break;
      const uint64_t at = operation.remote_offset + i - later.remote_offset;
      explained = later.is_write() && later.fault == Fault::kNone && at < later.length &&
                  later.payload[at] == bytes[i];
    }
    if (!explained) {
      verdict_.violate(
          fmt::format("{}: READ wr_id {:#x}: byte {} is {:#04x}, the model has {:#04x}",
                      name_of(end), operation.wr_id, i, std::to_integer<int>(bytes[i]),
                      std::to_integer<int>(operation.at_its_turn[i])));
      return;
    }
  }
}

}  // namespace uroce::sim
