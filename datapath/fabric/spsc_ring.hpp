// A byte ring in shared memory between one producer and one consumer, carrying whole frames in
// place.
//
//   byte 0      128             256        4096                                4096 + capacity
//   +-----------+---------------+----------+------------------------------------+
//   | magic     | consumed (u64)|          | records ...                        |
//   +-----------+---------------+----------+------------------------------------+
//
//   record:  | length (u32) | 0 (u32) | frame, `length` bytes | pad to kRecordAlignment |
//
// Records are contiguous: one that does not fit before the end is preceded by a record of length
// kWrap, which sends the consumer back to the start. A length of 0 is the end of what is published:
// the length word itself publishes a record, so that a short frame and its announcement travel in
// one cache line. A burst is published by storing the length of its first record last.
//
// Neither side believes the other: a length or an index is copied once and checked, and a bad one
// makes that ring `broken` for ever.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/wire.hpp"

namespace uroce::datapath {

struct RingLayout {
  static constexpr uint64_t kMagic = 0x31676e6972637275;  // "urcring1"
  static constexpr size_t kConsumedOffset = 128;
  static constexpr size_t kDataOffset = 4096;
  static constexpr size_t kRecordAlignment = 8;
  static constexpr size_t kRecordHeader = 8;
  static constexpr uint32_t kWrap = 0xffffffff;
  static constexpr size_t kMinCapacity = 64 << 10;
  static constexpr size_t kMaxCapacity = 64 << 20;
  // Default: below 256 KiB producer and consumer chase each other's lines.
  static constexpr size_t kDefaultCapacity = 1 << 20;
  static constexpr size_t kMinFrame = 14;  // an Ethernet header
  static constexpr size_t kMaxFrame = 10240;

  // Bytes of the whole mapping.
  static constexpr size_t mapping_bytes(size_t capacity) { return kDataOffset + capacity; }
  static constexpr bool is_capacity(size_t capacity) {
    return capacity >= kMinCapacity && capacity <= kMaxCapacity && (capacity & (capacity - 1)) == 0;
  }
  static constexpr size_t record_bytes(size_t frame_bytes) {
    return (kRecordHeader + frame_bytes + kRecordAlignment - 1) & ~(kRecordAlignment - 1);
  }
};

// The sending side. `mapping` is zeroed memory of mapping_bytes(capacity), written by one producer
// only. Frames become visible by publish, together.
class RingProducer {
 public:
  RingProducer(std::byte* mapping, size_t capacity);

  // Room for one frame of up to `size` bytes, or null: full, broken, or size > kMaxFrame. Replaces
  // an uncommitted reservation.
  std::byte* reserve(size_t size) {
    const size_t record = RingLayout::record_bytes(size);
    const size_t offset = tail_ & mask_;
    const size_t skip = offset + record > capacity_ ? capacity_ - offset : 0;
    // One alignment unit more, for the zero length that ends what is published.
    if (tail_ + skip + record + RingLayout::kRecordAlignment - consumed_ > capacity_ ||
        size > RingLayout::kMaxFrame) [[unlikely]] {
      if (!make_room(skip + record + RingLayout::kRecordAlignment, size)) return nullptr;
    }
    skip_ = skip;
    return data_ + ((tail_ + skip) & mask_) + RingLayout::kRecordHeader;
  }

  // The reserved frame is `size` bytes long; size <= what was reserved.
  void commit(size_t size) {
    if (skip_ != 0) {
      announce(tail_, RingLayout::kWrap);
      tail_ += skip_;
      skip_ = 0;
    }
    announce(tail_, static_cast<uint32_t>(size));
    tail_ += RingLayout::record_bytes(size);
  }

  // Makes all committed frames visible.
  void publish() {
    if (first_length_ == 0) return;
    word_at(tail_).store(0, std::memory_order_relaxed);
    word_at(first_).store(first_length_, std::memory_order_release);
    first_length_ = 0;
  }

  // True if the consumer has released everything that was published (or the ring is broken).
  bool drained();
  bool broken() const { return broken_; }

 private:
  std::atomic_ref<uint32_t> word_at(uint64_t position) const {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(data_ + (position & mask_)));
  }
  // The first length of a burst is held back until publish: it hides all that follow.
  void announce(uint64_t position, uint32_t length) {
    if (first_length_ == 0) {
      first_ = position;
      first_length_ = length;
    } else {
      word_at(position).store(length, std::memory_order_relaxed);
    }
  }
  bool make_room(size_t bytes, size_t frame_bytes);
  bool reload_consumed();

  std::byte* data_;
  std::atomic_ref<uint64_t> shared_consumed_;
  size_t capacity_;
  size_t mask_;
  uint64_t tail_ = 0;          // position behind the last committed record; never wraps
  uint64_t consumed_ = 0;      // last seen value of the consumer's index
  uint64_t first_ = 0;         // position of the first unpublished record
  uint32_t first_length_ = 0;  // its length; 0: nothing unpublished
  size_t skip_ = 0;            // bytes that the reservation leaves unused before the end
  bool broken_ = false;
};

// The receiving side.
class RingConsumer {
 public:
  RingConsumer(std::byte* mapping, size_t capacity);

  // Appends published frames to out and returns how many; they stay until release.
  size_t receive(std::span<Frame> out);
  // Gives the room of all received frames back to the producer.
  void release() {
    if (cursor_ == released_) return;
    released_ = cursor_;
    shared_consumed_.store(released_, std::memory_order_release);
  }
  // True if nothing more can be received at present.
  bool is_empty() const;
  bool broken() const { return broken_; }

 private:
  uint32_t length_at(size_t offset) const {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(data_ + offset))
        .load(std::memory_order_acquire);
  }
  size_t fail(size_t received);

  std::byte* data_;
  std::atomic_ref<uint64_t> shared_consumed_;
  size_t capacity_;
  size_t mask_;
  uint64_t cursor_ = 0;    // position of the next record
  uint64_t released_ = 0;  // position up to which room was given back
  bool broken_ = false;
};

}  // namespace uroce::datapath
