// Posting work: the hot path into the engine. No allocation; one doorbell per list.
#include <errno.h>

#include <mutex>
#include <span>

#include "provider/convert.hpp"
#include "provider/refusal.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {
namespace {

using transport::PostError;
using transport::SendOpcode;
using transport::Sge;

std::span<const Sge> sges_of(const ibv_sge* list, int count) {
  return {reinterpret_cast<const Sge*>(list), static_cast<size_t>(count)};
}

PostError post_one(transport::QueuePair& qp, const ibv_send_wr& in) {
  if (in.num_sge < 0) return PostError::kTooManySges;
  if (in.opcode > IBV_WR_ATOMIC_FETCH_AND_ADD) return PostError::kBadOpcode;
  transport::SendRequest request;
  request.wr_id = in.wr_id;
  request.sges = sges_of(in.sg_list, in.num_sge);
  request.opcode = static_cast<SendOpcode>(in.opcode);
  request.flags = in.send_flags;
  request.immediate = in.imm_data;
  if (in.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
    request.remote_address = in.wr.atomic.remote_addr;
    request.rkey = Rkey{in.wr.atomic.rkey};
    request.compare_add = in.wr.atomic.compare_add;
    request.swap = in.wr.atomic.swap;
  } else {
    request.remote_address = in.wr.rdma.remote_addr;
    request.rkey = Rkey{in.wr.rdma.rkey};
  }
  return qp.post_send(request);
}

PostError post_one(transport::QueuePair& qp, const ibv_recv_wr& in) {
  if (in.num_sge < 0) return PostError::kTooManySges;
  transport::ReceiveRequest request;
  request.wr_id = in.wr_id;
  request.sges = sges_of(in.sg_list, in.num_sge);
  return qp.post_recv(request);
}

std::string_view reason(PostError error) {
  switch (error) {
    case PostError::kNone:
      return "";
    case PostError::kQueueFull:
      return "the queue is full: poll completions first";
    case PostError::kWrongState:
      return "the queue pair's state does not allow it: sends need RTS, receives INIT";
    case PostError::kTooManySges:
      return "num_sge exceeds what the queue pair was created with";
    case PostError::kInlineTooLong:
      return "more inline data than max_inline_data";
    case PostError::kBadOpcode:
      return "not an operation of this queue pair's type, or inline where nothing is sent";
    case PostError::kMessageTooLong:
      return "a message of more than 2^31 bytes";
  }
  return "";
}

// A full queue is the normal way of flow control, so nobody wants to read of it.
int refuse_post(std::string_view verb, const transport::QueuePair& qp, PostError error) {
  if (error != PostError::kQueueFull) {
    datapath::log(datapath::LogLevel::kInfo, "{} on QP {:#x}: {}", verb, qp.qpn().value,
                  reason(error));
  }
  errno = errno_of(error);
  return errno;
}

// The engine waits for sends; for receives only to flush them in the error state.
bool needs_doorbell(const Qp&, const ibv_send_wr*) {
  return true;
}
bool needs_doorbell(const Qp& qp, const ibv_recv_wr*) {
  return qp.engine->state() == transport::QpState::kError;
}

// Posts a list in order up to the first refusal, then rings once for all of it.
template <typename Request>
int post_list(Qp& qp, Spinlock& lock, Request* request, Request** bad, std::string_view verb) {
  if (!qp.device->alive()) {
    *bad = request;
    return EIO;
  }
  Request* const first = request;
  PostError error = PostError::kNone;
  {
    const std::lock_guard guard(lock);
    for (; request != nullptr; request = request->next) {
      error = post_one(*qp.engine, *request);
      if (error != PostError::kNone) break;
    }
  }
  if (request != first && needs_doorbell(qp, first)) qp.device->ring(*qp.engine);
  if (error == PostError::kNone) return 0;
  *bad = request;
  return refuse_post(verb, *qp.engine, error);
}

}  // namespace

int post_send(ibv_qp* ibv, ibv_send_wr* request, ibv_send_wr** bad) {
  Qp& qp = of(ibv);
  return post_list(qp, qp.send_lock, request, bad, "post_send");
}

int post_recv(ibv_qp* ibv, ibv_recv_wr* request, ibv_recv_wr** bad) {
  Qp& qp = of(ibv);
  return post_list(qp, qp.receive_lock, request, bad, "post_recv");
}

}  // namespace uroce::provider
