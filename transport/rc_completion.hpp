// How work of an RC queue pair ends: its completions, and the flush of a queue pair in ERROR.
#pragma once

#include <cstdint>

#include "transport/engine.hpp"

namespace uroce::transport {

// Completes the send WQE `index`. A success that is not signalled leaves no entry; a failure always
// does (IBTA 10.7.3.1). If the completion queue is full, marks the queue pair fatal.
void complete_send(RcQueuePair& qp, uint32_t index, CompletionStatus status);

// What a receive completion says beyond its WQE.
struct Received {
  CompletionStatus status = CompletionStatus::kSuccess;
  CompletionOpcode opcode = CompletionOpcode::kRecv;
  uint32_t byte_length = 0;
  bool with_immediate = false;
  uint32_t immediate = 0;  // network byte order
  bool solicited = false;
};

// Completes the receive WQE at receive_index and moves on to the next.
void complete_receive(RcQueuePair& qp, const Received& received);

// Turns the queue pair to ERROR and flushes both queues. The responder's fatal NAK, if one is owed,
// and the responses before it still leave; anything else in progress ends.
void enter_error(Engine& engine, RcQueuePair& qp);

// Flushes what was posted since (a queue pair in ERROR).
void flush(RcQueuePair& qp);

// The requester's oldest WQE fails; the queue pair turns to ERROR.
void fail_requester(Engine& engine, RcQueuePair& qp, CompletionStatus status);

// Ends a queue pair that lost a completion to a full queue. Called after everything that can
// complete work; costs a load.
inline void settle(Engine& engine, RcQueuePair& qp) {
  if (!qp.fatal) [[likely]]
    return;
  qp.fatal = false;
  if (qp.state() == QpState::kError) return;
  engine.events.on_async_event(AsyncEventType::kQpFatal, qp.owner());
  enter_error(engine, qp);
}

}  // namespace uroce::transport
