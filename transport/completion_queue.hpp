// A completion queue: a ring between the engine (one producer, under the lane lock) and the
// application (one consumer at a time, under the queue's own lock, which its caller holds).
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
  // An armed queue got a completion that fires it; the arming is spent.
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
  // `capacity` entries are usable (rounded up inside). `owner` is the provider's object.
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
  // Fires once: at the next completion (a solicited or failed one if `solicited_only`), or at once
  // if one lies unpolled. A full fence on both sides: a completion that arrives meanwhile always
  // fires.
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
  uint32_t capacity_;
  EventSink& events_;
  void* owner_;
  // The engine's author adds the ring here.
};

}  // namespace uroce::transport
