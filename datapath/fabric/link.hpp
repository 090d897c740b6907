// A ring with what the lane knows about its peer, and the hand-over of such links from the control
// thread to the lane.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "datapath/fabric/doorbell.hpp"
#include "datapath/fabric/ring_memory.hpp"
#include "datapath/fabric/spsc_ring.hpp"

namespace uroce::datapath {

// Toward a peer. Owned by the lane once adopted.
struct TxLink {
  TxLink(uint64_t link_id, uint8_t peer_slot, RingMemory ring, SlotEntry& peer_entry)
      : id(link_id),
        slot(peer_slot),
        memory(std::move(ring)),
        producer(memory.data(), memory.capacity()),
        doorbell(peer_entry) {}

  const uint64_t id;
  const uint8_t slot;
  RingMemory memory;
  RingProducer producer;
  Doorbell doorbell;          // the peer's
  bool gone = false;          // nothing more is sent: retire when no ring is in use
  bool dirty = false;         // has committed frames that are not published
  bool watched = false;       // the peer may have to be woken for what was published
  uint64_t look_at_tick = 0;  // when to look again, if watched
  uint32_t looks = 0;         // how often we did
};

// From a peer.
struct RxLink {
  RxLink(uint64_t link_id, uint8_t peer_slot, RingMemory ring)
      : id(link_id),
        slot(peer_slot),
        memory(std::move(ring)),
        consumer(memory.data(), memory.capacity()) {}
  // Reads memory that someone else owns: the loopback ring.
  RxLink(uint64_t link_id, uint8_t peer_slot, RingConsumer ring)
      : id(link_id), slot(peer_slot), consumer(ring) {}

  const uint64_t id;
  const uint8_t slot;
  RingMemory memory;
  RingConsumer consumer;
  bool closing = false;  // the peer is gone: retire when empty
};

// The control thread posts, the lane takes at a moment when it uses no ring; so memory is unmapped
// by the only thread that reads it.
class LinkExchange {
 public:
  struct Changes {
    std::vector<std::unique_ptr<TxLink>> new_tx;
    std::vector<std::unique_ptr<RxLink>> new_rx;
    std::vector<uint64_t> gone;  // ids of links whose peer is gone
  };

  void add(std::unique_ptr<TxLink> link) {
    const std::lock_guard guard(mutex_);
    changes_.new_tx.push_back(std::move(link));
    pending_.store(true, std::memory_order_release);
  }
  void add(std::unique_ptr<RxLink> link) {
    const std::lock_guard guard(mutex_);
    changes_.new_rx.push_back(std::move(link));
    pending_.store(true, std::memory_order_release);
  }
  void remove(uint64_t id) {
    const std::lock_guard guard(mutex_);
    changes_.gone.push_back(id);
    pending_.store(true, std::memory_order_release);
  }

  bool pending() const { return pending_.load(std::memory_order_acquire); }
  Changes take() {
    const std::lock_guard guard(mutex_);
    pending_.store(false, std::memory_order_relaxed);
    return std::exchange(changes_, Changes{});
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> pending_{false};
  Changes changes_;
};

}  // namespace uroce::datapath
