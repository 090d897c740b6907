// Receive completions: order, status, members and data; and what must hold when all is over.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/sim/completion_oracle.hpp"
#include "tools/sim/transcript.hpp"

namespace uroce::sim {

using transport::Completion;
using transport::CompletionOpcode;
using transport::CompletionStatus;

void CompletionOracle::on_receive_completion(Endpoint& end, const Completion& completion) {
  if (end.forgotten) {
    blame(end, completion, "the queue pair was destroyed or reset");
    return;
  }
  if (end.receives_completed == end.receives.size()) {
    blame(end, completion, "no receive is posted");
    return;
  }
  Receive& receive = end.receives[end.receives_completed];
  if (completion.wr_id != receive.wr_id) {
    blame(end, completion, fmt::format("the next in order is wr_id {:#x}", receive.wr_id));
    return;
  }
  if (completion.status == CompletionStatus::kSuccess) {
    judge_receive_success(end, receive, completion);
    receive.succeeded = true;
  } else {
    judge_receive_failure(end, receive, completion);
    end.receive_failed = true;
  }
  ++end.receives_completed;
  receive.completed = true;
  for (Piece& piece : receive.pieces) {
    if (const auto why = end.memory->settle(std::exchange(piece.effect, Memory::kNoEffect))) {
      blame(end, completion, *why);
    }
    check(end, *end.memory, piece.offset, piece.length, "in a receive buffer");
  }
  give_back(end, receive.pieces);
}

void CompletionOracle::judge_receive_success(Endpoint& end, Receive& receive,
                                             const Completion& completion) {
  if (end.receive_failed) {
    blame(end, completion, "after an error every receive is flushed");
    return;
  }
  if (receive.message == nullptr) {
    blame(end, completion, "nobody sent a message for this receive");
    return;
  }
  const Operation& message = *receive.message;
  note_executed(*end.peer, end.peer->flow.index_of(message) + 1, verdict_);
  const CompletionOpcode opcode =
      message.is_send() ? CompletionOpcode::kRecv : CompletionOpcode::kRecvRdmaWithImm;
  if (completion.opcode != opcode) blame(end, completion, "wrong opcode");
  if (completion.qpn != end.qpn) blame(end, completion, "wrong queue pair number");
  if (completion.byte_length != message.length) {
    blame(end, completion, fmt::format("byte_len must be {}", message.length));
  }
  if (((completion.flags & transport::kWithImm) != 0) != message.has_immediate()) {
    blame(end, completion, "the flag for an immediate is wrong");
  } else if (message.has_immediate() && completion.immediate != message.immediate) {
    blame(end, completion, fmt::format("the immediate must be {:#x}", message.immediate));
  }
  if (message.is_send()) {
    for (Piece& piece : receive.pieces) {
      end.memory->commit(std::exchange(piece.effect, Memory::kNoEffect));
    }
  } else {
    check(end, *end.memory, message.remote_offset, message.length,
          "a WRITE whose immediate was received is not visible");
  }
}

void CompletionOracle::judge_receive_failure(Endpoint& end, const Receive& receive,
                                             const Completion& completion) {
  if (completion.status == CompletionStatus::kWrFlushError) {
    if (end.qp->state() != transport::QpState::kError) {
      blame(end, completion, "flushed though the queue pair is not in ERROR");
    }
    return;
  }
  if (end.receive_failed) {
    blame(end, completion, "only the first failure has a status of its own");
    return;
  }
  end.failure = completion.status;
  if (receive.fault == Fault::kShortReceive &&
      completion.status == CompletionStatus::kLocalLengthError) {
    return;
  }
  if (receive.fault == Fault::kBadReceiveLkey &&
      completion.status == CompletionStatus::kLocalProtectionError) {
    return;
  }
  // A WRITE_WITH_IMM that is refused completes its receive in error (C9-222.1.1).
  if (receive.message != nullptr && receive.message->has_immediate() &&
      is_responder_fault(receive.message->fault)) {
    return;
  }
  blame(end, completion,
        fmt::format("nothing explains this failure (fault: {})", name_of(receive.fault)));
}

void CompletionOracle::judge_end(const Endpoint& end) {
  if (end.forgotten) return;
  const Flow& flow = end.flow;
  const auto blame_end = [&](std::string_view what) {
    verdict_.violate(fmt::format("{}: {}", name_of(end), what));
  };
  // Unsignaled operations that succeeded before the connection broke leave no trace.
  const bool silent =
      !flow.failed && end.wire.unacknowledged == flow.packets &&
      std::none_of(flow.operations.begin() + static_cast<long>(flow.completed),
                   flow.operations.end(), [](const Operation& op) { return op.signaled; });
  if (flow.completed < flow.operations.size() && !silent) {
    blame_end(fmt::format("{} of {} operations never completed, the first is wr_id {:#x}",
                          flow.operations.size() - flow.completed, flow.operations.size(),
                          flow.operations[flow.completed].wr_id));
  }
  if (end.receives_completed < end.receives.size()) {
    blame_end(fmt::format("{} of {} receives never completed",
                          end.receives.size() - end.receives_completed, end.receives.size()));
  }
  const bool refused_something =
      std::any_of(end.peer->flow.operations.begin(), end.peer->flow.operations.end(),
                  [](const Operation& op) { return is_responder_fault(op.fault); });
  if (!end.moved_to_error && !end.failure && !refused_something &&
      end.qp->state() == transport::QpState::kError) {
    blame_end("in ERROR, and nothing explains it");
  }
  if (end.peer->forgotten) return;
  for (const Operation& operation : flow.operations) {
    if (operation.succeeded && operation.receive &&
        *operation.receive < end.peer->receives.size() &&
        !end.peer->receives[*operation.receive].succeeded) {
      blame_end(fmt::format("wr_id {:#x} succeeded, its receive did not", operation.wr_id));
    }
  }
}

}  // namespace uroce::sim
