// A completion queue: a ring between the engine (one producer, under the lane lock) and the
// application (one consumer at a time, under the queue's own lock, which its caller holds).
//
// Entries are counted without end: `produced_` and `consumed_` are 64-bit totals, and an entry's
// place is its number modulo the capacity. Producer, consumer and arming live on lines of their
// own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/verbs.hpp"

namespace uroce::transport {

class QueuePair;
class CompletionQueue;

// Told by the engine, under the lane lock; must not call back into the HCA. `subject` is the owner
// of the QP or CQ.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // An armed queue got a completion that fires it; the arming is spent. The one call that may come
  // from the application's thread, out of CompletionQueue::arm, without the lane lock.
  virtual void on_completion_event(CompletionQueue& cq) = 0;
  virtual void on_async_event(AsyncEventType type, void* subject) = 0;
  // Keeps the application from polling `cq` while the engine removes entries (destroy_qp, modify to
  // RESET).
  virtual void lock_consumer(CompletionQueue&) {}
  virtual void unlock_consumer(CompletionQueue&) {}
};

// A completion with the work queue slots that it frees when it is polled, as mlx5 does.
struct CqEntry {
  Completion completion;
  std::atomic<uint32_t>* released = nullptr;  // the work queue's count of freed slots; may be null
  uint32_t release_to = 0;                    // value to store there
  bool solicited = false;
};

class CompletionQueue {
 public:
  static constexpr size_t kLine = 64;  // bytes of a cache line

  // `capacity` entries are usable (rounded up to a power of two). `owner` is the provider's object.
  CompletionQueue(uint32_t capacity, EventSink& events, void* owner);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  void* owner() const { return owner_; }
  uint32_t capacity() const { return capacity_; }

  // Consumer side. Takes up to out.size() completions, oldest first, freeing the work queue slots
  // that they stand for. An overflown queue returns what it holds, then nothing.
  size_t poll(std::span<Completion> out);
  bool empty() const;
  // Fires once: at the next completion to come (a solicited or failed one if `solicited_only`), not
  // for one that lies unpolled: consumers arm, then poll once more (IBTA 11.4.2.2). A full fence on
  // both sides: a completion that arrives meanwhile fires, or that poll finds it.
  void arm(bool solicited_only);

  // Producer side, under the lane lock. On overflow the entry is lost, the queue turns to the error
  // state (kCqError is raised once), and false is returned; the caller moves the QP to ERROR.
  bool push(const CqEntry& entry);
  bool overflown() const;

  // Under both locks: forgets the completions of a queue pair that is being destroyed or reset,
  // releasing their slots.
  void remove_all_of(Qpn qpn);

  // Queue pairs that complete here; destroy_cq is EBUSY while it is not 0 (C11-17).
  std::atomic<uint32_t> users{0};

 private:
  static constexpr size_t kPollBatch = 16;

  // How the queue is armed, as bits; kArmedNext prevails over kArmedSolicited (IBTA 11.4.2.2).
  enum Arming : uint32_t { kArmedSolicited = 1, kArmedNext = 2 };

  CqEntry* entry_at(uint64_t number) const { return ring_.get() + (number & (capacity_ - 1)); }
  size_t poll_batch(std::span<Completion> out);
  void fire();

  struct FreeRing {
    void operator()(CqEntry* ring) const;
  };

  uint32_t capacity_;
  EventSink& events_;
  void* owner_;
  std::unique_ptr<CqEntry, FreeRing> ring_;  // raw until produced; CqEntry needs no destructor

  // Written by the producer.
  alignas(kLine) std::atomic<uint64_t> produced_{0};
  uint64_t consumed_seen_ = 0;
  std::atomic<bool> overflown_{false};

  // Written by the consumer.
  alignas(kLine) std::atomic<uint64_t> consumed_{0};
  uint64_t produced_seen_ = 0;

  alignas(kLine) std::atomic<uint32_t> armed_{0};
};

}  // namespace uroce::transport
