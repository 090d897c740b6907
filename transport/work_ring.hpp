// The storage of a work queue: a ring of fixed strides between a posting application and the
// engine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace uroce::transport {

// Single producer (the application, under the queue's lock), single consumer (the engine, under the
// lane's). Indices run freely over 32 bits and wrap. A slot is free again only when its completion
// has been polled (`released`), as on mlx5, so that a full queue is seen before a completion queue
// overflows. A power of two of slots; 0 slots is a queue that is always full.
class WorkRing {
 public:
  WorkRing(uint32_t capacity, uint32_t stride_bytes)
      : stride_(stride_bytes), mask_(capacity - 1), capacity_(capacity) {
    const size_t bytes = (size_t{capacity} * stride_bytes + kLine - 1) / kLine * kLine;
    if (bytes != 0) slots_.reset(static_cast<std::byte*>(std::aligned_alloc(kLine, bytes)));
  }

  bool allocated() const { return capacity_ == 0 || slots_ != nullptr; }
  uint32_t capacity() const { return capacity_; }

  // Producer side: the slot to fill, or null when full; then publish.
  std::byte* reserve() {
    if (next_ - released_.load(std::memory_order_acquire) >= capacity_) return nullptr;
    return slot(next_);
  }
  void publish() { posted_.store(++next_, std::memory_order_release); }

  // Consumer side.
  uint32_t posted() const { return posted_.load(std::memory_order_acquire); }
  std::byte* slot(uint32_t index) const { return slots_.get() + size_t{index & mask_} * stride_; }
  // The count that a polled completion moves on (CqEntry::released).
  std::atomic<uint32_t>& released() { return released_; }

  // Back to empty (modify to RESET): the caller keeps producer and consumers away.
  void clear() {
    next_ = 0;
    posted_.store(0, std::memory_order_relaxed);
    released_.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kLine = 64;  // bytes of a cache line
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  std::unique_ptr<std::byte, Free> slots_;
  uint32_t stride_;  // bytes
  uint32_t mask_;
  uint32_t capacity_;
  uint32_t next_ = 0;  // the producer's copy of posted_
  std::atomic<uint32_t> posted_{0};
  std::atomic<uint32_t> released_{0};
};

}  // namespace uroce::transport
