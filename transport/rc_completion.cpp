// Completions in the order of posting, and the flush.
#include "transport/rc_completion.hpp"

#include <array>
#include <atomic>

namespace uroce::transport {

namespace {

// By SendOpcode.
constexpr std::array kCompletionOpcodes = {
    CompletionOpcode::kRdmaWrite, CompletionOpcode::kRdmaWrite, CompletionOpcode::kSend,
    CompletionOpcode::kSend,      CompletionOpcode::kRdmaRead,  CompletionOpcode::kCompSwap,
    CompletionOpcode::kFetchAdd};

}  // namespace

void complete_send(RcQueuePair& qp, uint32_t index, CompletionStatus status) {
  SendQueue& queue = qp.send_queue();
  const SendWqe& wqe = queue.at(index);
  if (status == CompletionStatus::kSuccess && !wqe.has(kSignaled)) return;
  CqEntry entry;
  entry.completion.wr_id = wqe.wr_id;
  entry.completion.byte_length = wqe.length;
  entry.completion.qpn = qp.qpn();
  entry.completion.source_qpn = qp.connection.remote_qpn;
  entry.completion.status = status;
  entry.completion.opcode = kCompletionOpcodes[static_cast<size_t>(wqe.opcode)];
  entry.released = &queue.ring.released();
  entry.release_to = index + 1;
  if (!qp.init_attributes().send_cq->push(entry)) qp.fatal = true;
}

void complete_receive(RcQueuePair& qp, const Received& received) {
  ReceiveQueue& queue = qp.receive_queue();
  const uint32_t index = qp.responder.receive_index++;
  CqEntry entry;
  entry.completion.wr_id = queue.at(index).wr_id;
  entry.completion.byte_length = received.byte_length;
  entry.completion.immediate = received.immediate;
  entry.completion.qpn = qp.qpn();
  entry.completion.source_qpn = qp.connection.remote_qpn;
  entry.completion.status = received.status;
  entry.completion.opcode = received.opcode;
  entry.completion.flags = received.with_immediate ? uint8_t{kWithImm} : uint8_t{0};
  entry.solicited = received.solicited;
  entry.released = &queue.ring.released();
  entry.release_to = index + 1;
  if (!qp.init_attributes().recv_cq->push(entry)) qp.fatal = true;
}

void enter_error(Engine& engine, RcQueuePair& qp) {
  if (qp.state() == QpState::kError) return;
  qp.set_state(QpState::kError);
  engine.timers.cancel(qp.timer);
  qp.requester.wait = RequesterWait::kNothing;
  qp.requester.deadline = Instant::never();
  ResponderState& responder = qp.responder;
  if (responder.reply != Reply::kFatalNak) {
    for (FetchResource& resource : responder.resources) resource.pending = false;
    responder.pending = 0;
    responder.reply = Reply::kNone;
  }
  flush(qp);
}

void flush(RcQueuePair& qp) {
  // Meets the fence of post_recv: either we see the request, or its caller sees kError.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  RequesterState& requester = qp.requester;
  const uint32_t posted = qp.send_queue().ring.posted();
  for (; requester.una_index != posted; ++requester.una_index) {
    complete_send(qp, requester.una_index, CompletionStatus::kWrFlushError);
  }
  requester.started = requester.send_index = posted;
  requester.una = requester.next_psn = requester.sent_end;
  requester.fetch_head = requester.fetch_issued = requester.fetch_tail;
  requester.ask_open = false;

  const uint32_t received = qp.receive_queue().ring.posted();
  while (qp.responder.receive_index != received) {
    complete_receive(qp, {.status = CompletionStatus::kWrFlushError});
  }
}

void fail_requester(Engine& engine, RcQueuePair& qp, CompletionStatus status) {
  complete_send(qp, qp.requester.una_index, status);
  ++qp.requester.una_index;
  enter_error(engine, qp);
}

}  // namespace uroce::transport
