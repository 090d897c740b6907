// The order in which queue pairs transmit: FIFO queues of them, and what a turn may use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/packet.hpp"
#include "transport/types.hpp"

namespace uroce::transport {

class RcQueuePair;

// A place in a ServiceQueue; a queue pair embeds one per queue.
struct ServiceHook {
  RcQueuePair* next = nullptr;
  bool queued = false;
};

// A FIFO of queue pairs, each in it at most once.
template <ServiceHook RcQueuePair::*kHook>
class ServiceQueue {
 public:
  bool empty() const { return head_ == nullptr; }

  void push(RcQueuePair& qp) {
    ServiceHook& hook = qp.*kHook;
    if (hook.queued) return;
    hook = {nullptr, true};
    if (head_ == nullptr) {
      head_ = &qp;
    } else {
      (tail_->*kHook).next = &qp;
    }
    tail_ = &qp;
  }

  RcQueuePair* pop() {
    RcQueuePair* qp = head_;
    if (qp == nullptr) return nullptr;
    head_ = (qp->*kHook).next;
    qp->*kHook = {};
    return qp;
  }

  // For the control path: walks the queue.
  void remove(RcQueuePair& qp) {
    ServiceQueue rest;
    while (RcQueuePair* each = pop()) {
      if (each != &qp) rest.push(*each);
    }
    *this = rest;
  }

 private:
  RcQueuePair* head_ = nullptr;
  RcQueuePair* tail_ = nullptr;
};

// How a queue pair's turn to transmit ended.
enum class TurnEnd : uint8_t {
  kIdle,    // nothing more to send until something happens
  kBudget,  // its share is used up: there is more
  kParked,  // the sink refused: to be asked again in the next poll_transmit
};

struct Turn {
  size_t sent = 0;  // packets
  TurnEnd end = TurnEnd::kIdle;
};

// What a turn may use: the wire, a share of the burst, the time.
struct TurnShare {
  TransmitSink& sink;
  size_t budget;  // packets
  Instant now;
};

}  // namespace uroce::transport
