// Queue pairs with freshly posted work: any thread rings, the lane's holder takes them all.
#pragma once

#include <atomic>

#include "transport/queue_pair.hpp"

namespace uroce::datapath {

class DoorbellList {
 public:
  // A node is in the list at most once; ringing it again before it is taken changes nothing.
  void ring(transport::DoorbellNode& node) {
    if (node.rung.exchange(true, std::memory_order_acq_rel)) return;
    transport::DoorbellNode* head = head_.load(std::memory_order_relaxed);
    do {
      node.next = head;
    } while (!head_.compare_exchange_weak(head, &node, std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  bool empty() const { return head_.load(std::memory_order_relaxed) == nullptr; }

  // Calls take(node) for each. A node may be rung again from then on: its flag falls before its
  // queue is read.
  template <typename Take>
  bool take_all(Take&& take) {
    if (empty()) return false;
    transport::DoorbellNode* node = head_.exchange(nullptr, std::memory_order_acquire);
    while (node != nullptr) {
      transport::DoorbellNode* const next = node->next;
      node->rung.exchange(false, std::memory_order_acq_rel);
      take(*node);
      node = next;
    }
    return true;
  }

 private:
  alignas(64) std::atomic<transport::DoorbellNode*> head_{nullptr};
};

}  // namespace uroce::datapath
