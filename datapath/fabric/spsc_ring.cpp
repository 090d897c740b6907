// The parts of the ring that are off the hot path of a single frame: refilling room, walking
// records.
#include "datapath/fabric/spsc_ring.hpp"

namespace uroce::datapath {

namespace {

std::atomic_ref<uint64_t> consumed_word(std::byte* mapping) {
  return std::atomic_ref<uint64_t>(
      *reinterpret_cast<uint64_t*>(mapping + RingLayout::kConsumedOffset));
}

}  // namespace

RingProducer::RingProducer(std::byte* mapping, size_t capacity)
    : data_(mapping + RingLayout::kDataOffset),
      shared_consumed_(consumed_word(mapping)),
      capacity_(capacity),
      mask_(capacity - 1) {}

bool RingProducer::make_room(size_t bytes, size_t frame_bytes) {
  if (frame_bytes > RingLayout::kMaxFrame || !reload_consumed()) return false;
  return tail_ + bytes - consumed_ <= capacity_;
}

// The index only grows and never passes what was written; anything else is a broken peer.
bool RingProducer::reload_consumed() {
  if (broken_) return false;
  const uint64_t consumed = shared_consumed_.load(std::memory_order_acquire);
  if (consumed < consumed_ || consumed > tail_) {
    broken_ = true;
    return false;
  }
  consumed_ = consumed;
  return true;
}

bool RingProducer::drained() {
  if (!reload_consumed()) return true;
  return consumed_ == (first_length_ != 0 ? first_ : tail_);
}

RingConsumer::RingConsumer(std::byte* mapping, size_t capacity)
    : data_(mapping + RingLayout::kDataOffset),
      shared_consumed_(consumed_word(mapping)),
      capacity_(capacity),
      mask_(capacity - 1) {}

size_t RingConsumer::receive(std::span<Frame> out) {
  if (broken_) return 0;
  size_t received = 0;
  uint64_t position = cursor_;
  while (received < out.size()) {
    size_t offset = position & mask_;
    uint32_t length = length_at(offset);
    if (length == 0) break;
    if (length == RingLayout::kWrap) {
      if (offset == 0) return fail(received);
      position += capacity_ - offset;
      offset = 0;
      length = length_at(0);
    }
    if (length < RingLayout::kMinFrame || length > RingLayout::kMaxFrame) return fail(received);
    const size_t record = RingLayout::record_bytes(length);
    if (offset + record > capacity_) return fail(received);
    position += record;
    if (position - released_ > capacity_) return fail(received);
    out[received++] = {data_ + offset + RingLayout::kRecordHeader, length};
    cursor_ = position;
  }
  return received;
}

// Frames found before the bad record are good.
size_t RingConsumer::fail(size_t received) {
  broken_ = true;
  return received;
}

bool RingConsumer::is_empty() const {
  return broken_ || length_at(cursor_ & mask_) == 0;
}

}  // namespace uroce::datapath
