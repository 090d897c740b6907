// Allocates keys and keeps regions; the checks on the data path are inline in the header.
#include "transport/memory_table.hpp"

#include <fmt/format.h>

#include <cassert>
#include <cerrno>

namespace uroce::transport {

namespace {

constexpr AccessFlags kKnownAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic |
                                     kMwBind | kZeroBased | kOnDemand | kHugeTlb;
// Hints: a device ignores those of this range that it does not know (IBV_ACCESS_OPTIONAL_RANGE).
constexpr AccessFlags kOptionalAccess = 0x3ff00000;

bool wraps(uint64_t start, uint64_t length) {
  return length != 0 && start + (length - 1) < start;
}

Status check_attributes(const RegionAttributes& attributes, const MemoryLimits& limits) {
  const AccessFlags unknown = attributes.access & ~(kKnownAccess | kOptionalAccess);
  if (unknown != 0) {
    return Refusal{EINVAL, fmt::format("reg_mr: unknown access flags {:#x}", unknown)};
  }
  if ((attributes.access & (kRemoteWrite | kRemoteAtomic)) != 0 &&
      (attributes.access & kLocalWrite) == 0) {
    return Refusal{EINVAL,
                   "reg_mr: REMOTE_WRITE and REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE as well"};
  }
  if (attributes.length > limits.max_region_bytes) {
    return Refusal{EINVAL, fmt::format("reg_mr: length {} is over max_mr_size {}",
                                       attributes.length, limits.max_region_bytes)};
  }
  if (wraps(reinterpret_cast<uintptr_t>(attributes.address), attributes.length) ||
      wraps(attributes.iova, attributes.length)) {
    return Refusal{EINVAL, "reg_mr: address + length is beyond the end of the address space"};
  }
  return Done{};
}

}  // namespace

std::string_view name_of(MemoryRefusal refusal) {
  switch (refusal) {
    case MemoryRefusal::kNone:
      return "granted";
    case MemoryRefusal::kUnknownKey:
      return "unknown key";
    case MemoryRefusal::kWrongDomain:
      return "key of another protection domain";
    case MemoryRefusal::kOutOfBounds:
      return "range outside the region";
    case MemoryRefusal::kNoAccess:
      return "access right missing";
  }
  return "unknown";
}

MemoryTable::MemoryTable(const MemoryLimits& limits, uint64_t seed)
    : limits_(limits), chunks_(kChunkCount), random_state_(seed) {
  assert(limits.max_regions <= 1u << 23);
  // The first and the last chunk stay unused, so that no key looks like 0 or all ones.
  chunks_left_ = (limits.max_regions + kMinimumResting) / kChunkEntries + 1;
  if (chunks_left_ > kChunkCount - 2) chunks_left_ = kChunkCount - 2;
  next_chunk_ = 1 + static_cast<uint32_t>(next_random() % (kChunkCount - 2));
}

Result<uint32_t> MemoryTable::register_region(const RegionAttributes& attributes) {
  if (Status status = check_attributes(attributes, limits_); !status) return status.refusal();
  if (live_regions_ >= limits_.max_regions) {
    return Refusal{ENOMEM, fmt::format("reg_mr: {} regions are registered, the device's max_mr",
                                       live_regions_)};
  }
  const uint32_t index = take_index();
  Entry& entry = entry_at(index);
  entry.address = attributes.address;
  entry.length = attributes.length;
  entry.iova = attributes.iova;
  entry.pd = attributes.pd;
  entry.access = attributes.access;
  entry.live = true;
  ++live_regions_;
  return index << 8 | entry.key;
}

Result<RegionAttributes> MemoryTable::deregister_region(Lkey key) {
  if (find(key.value) == nullptr) {
    return Refusal{EINVAL, fmt::format("dereg_mr: unknown key {:#x}", key.value)};
  }
  const uint32_t index = key.value >> 8;
  Entry& entry = entry_at(index);
  const RegionAttributes attributes{.pd = entry.pd,
                                    .address = entry.address,
                                    .length = entry.length,
                                    .iova = entry.iova,
                                    .access = entry.access};
  entry.live = false;
  ++entry.key;
  entry.next_free = kNoIndex;
  if (free_tail_ == kNoIndex) {
    free_head_ = index;
  } else {
    entry_at(free_tail_).next_free = index;
  }
  free_tail_ = index;
  ++free_count_;
  --live_regions_;
  return attributes;
}

// Some index is always left: chunks_left_ started with room for all live regions.
uint32_t MemoryTable::take_index() {
  if (free_count_ < kMinimumResting && (fresh_next_ != fresh_end_ || add_chunk())) {
    return fresh_next_++;
  }
  assert(free_count_ != 0);
  const uint32_t index = free_head_;
  free_head_ = entry_at(index).next_free;
  if (free_head_ == kNoIndex) free_tail_ = kNoIndex;
  --free_count_;
  return index;
}

bool MemoryTable::add_chunk() {
  if (chunks_left_ == 0) return false;
  --chunks_left_;
  const uint32_t number = next_chunk_;
  next_chunk_ = number == kChunkCount - 2 ? 1 : number + 1;
  chunks_[number] = std::make_unique<Chunk>();
  for (Entry& entry : *chunks_[number]) entry.key = static_cast<uint8_t>(next_random());
  fresh_next_ = number * kChunkEntries;
  fresh_end_ = fresh_next_ + kChunkEntries;
  return true;
}

// splitmix64.
uint64_t MemoryTable::next_random() {
  random_state_ += 0x9e3779b97f4a7c15;
  uint64_t mixed = random_state_;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return mixed ^ mixed >> 31;
}

}  // namespace uroce::transport
