// A queue pair as its users see it: posting from the application, identity and state for the
// others.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/receive_queue.hpp"
#include "transport/send_queue.hpp"
#include "transport/verbs.hpp"

namespace uroce::transport {

// How the application's side tells a lane that a queue has work: an intrusive node of the lane's
// list.
struct DoorbellNode {
  std::atomic<bool> rung{false};
  DoorbellNode* next = nullptr;
};

// Made by the HCA only, as the base of the transport service's own queue pair.
class QueuePair : public DoorbellNode {
 public:
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  Qpn qpn() const { return qpn_; }
  QpType type() const { return init_attributes_.type; }
  QpState state() const {  // readable from any thread
    return state_.load(std::memory_order_acquire);
  }
  void* owner() const { return init_attributes_.owner; }
  // With the capabilities granted.
  const QpInitAttributes& init_attributes() const { return init_attributes_; }

  // Application side: the caller holds the QP's send (receive) lock; the engine may run meanwhile.
  // On success the caller rings the lane's doorbell, which leads to Hca::activate: after each
  // post_send, and after a post_recv that finds the state kError afterwards (the engine waits for
  // no receive otherwise). A QP in ERROR accepts and flushes. Copies the request whole
  // (PROTOCOL.md 15).
  [[nodiscard]] PostError post_send(const SendRequest& request);
  [[nodiscard]] PostError post_recv(const ReceiveRequest& request);

 protected:
  QueuePair(Qpn qpn, const QpInitAttributes& granted)
      : send_queue_(granted.capabilities.max_send_wr, granted.capabilities.max_send_sge,
                    granted.capabilities.max_inline_data),
        receive_queue_(granted.capabilities.max_recv_wr, granted.capabilities.max_recv_sge),
        qpn_(qpn),
        init_attributes_(granted) {}
  ~QueuePair() = default;

  SendQueue send_queue_;
  ReceiveQueue receive_queue_;
  std::atomic<QpState> state_{QpState::kReset};

 private:
  Qpn qpn_;
  QpInitAttributes init_attributes_;
};

}  // namespace uroce::transport
