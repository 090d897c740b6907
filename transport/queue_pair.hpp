// A queue pair as its users see it: posting from the application, identity and state for the
// others.
#pragma once

#include <atomic>
#include <cstdint>

#include "transport/verbs.hpp"

namespace uroce::transport {

// How the application's side tells a lane that a queue has work: an intrusive node of the lane's
// list.
struct DoorbellNode {
  std::atomic<bool> rung{false};
  DoorbellNode* next = nullptr;
};

class QueuePair : public DoorbellNode {
 public:
  Qpn qpn() const;
  QpType type() const;
  QpState state() const;  // readable from any thread
  void* owner() const;
  const QpInitAttributes& init_attributes() const;  // with the capabilities granted

  // Application side: the caller holds the QP's send (receive) lock; the engine may run meanwhile.
  // On success the caller rings the lane's doorbell, which leads to Hca::activate.
  // A QP in ERROR accepts and flushes. Copies the request whole (PROTOCOL.md 15).
  [[nodiscard]] PostError post_send(const SendRequest& request);
  [[nodiscard]] PostError post_recv(const ReceiveRequest& request);
};

}  // namespace uroce::transport
