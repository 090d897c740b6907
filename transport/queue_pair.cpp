// Posting: which states accept work.
#include "transport/queue_pair.hpp"

namespace uroce::transport {

PostError QueuePair::post_send(const SendRequest& request) {
  const QpState now = state();
  if (now == QpState::kReset || now == QpState::kInit || now == QpState::kRtr) {
    return PostError::kWrongState;
  }
  return send_queue_.post(request, init_attributes_.signal_all);
}

PostError QueuePair::post_recv(const ReceiveRequest& request) {
  if (state() == QpState::kReset) return PostError::kWrongState;
  const PostError error = receive_queue_.post(request);
  // Meets the fence of the engine's flush: either it sees this request, or the caller sees kError.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return error;
}

}  // namespace uroce::transport
