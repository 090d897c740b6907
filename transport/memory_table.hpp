// The table of memory regions: allocates keys, and turns (key, domain, range, access) into a
// pointer or a reason.
//
// A key is a 24-bit index << 8 | an 8-bit key. Indices start at random, freed ones rest in a FIFO
// behind thousands of others, and each reuse changes the 8-bit key, so that a stale key hits
// nothing (PROTOCOL.md 30). Everything runs under the lane's lock; cost does not depend on a
// region's size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "transport/result.hpp"
#include "transport/types.hpp"
#include "transport/verbs.hpp"

namespace uroce::transport {

// Why a key or a range was not accepted. The consumer's statuses and the responder's NAKs do not
// tell these apart; logs and vendor errors do.
enum class MemoryRefusal : uint8_t {
  kNone,
  kUnknownKey,   // never given out, deregistered, or of an earlier user of the index
  kWrongDomain,  // another protection domain's
  kOutOfBounds,  // not wholly within the region, or it wraps around 2^64
  kNoAccess,     // the region lacks a right that is needed
};
// "unknown key" for kUnknownKey.
std::string_view name_of(MemoryRefusal refusal);

// A range in the region's own addresses (RegionAttributes::iova).
struct MemoryRange {
  uint64_t address = 0;
  uint64_t length = 0;  // bytes
};

struct MemoryGrant {
  std::byte* address = nullptr;  // of the range's first byte in this process
  MemoryRefusal refusal = MemoryRefusal::kNone;

  bool ok() const { return refusal == MemoryRefusal::kNone; }
};

struct MemoryLimits {
  uint32_t max_regions = 1u << 20;  // live at once; at most 2^23
  uint64_t max_region_bytes = 1ull << 47;
};

class MemoryTable {
 public:
  MemoryTable(const MemoryLimits& limits, uint64_t seed);
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  // The region's key, L_Key and R_Key alike; never 0. Refusals: EINVAL (unknown access flags;
  // remote write or atomic without local write, IBTA 10.6.3.1; a range that wraps or is too long),
  // ENOMEM (table full).
  Result<uint32_t> register_region(const RegionAttributes& attributes);
  // What the key stood for. Refusal: EINVAL, an unknown key.
  Result<RegionAttributes> deregister_region(Lkey key);

  uint32_t live_regions() const { return live_regions_; }

  // Local use: reading needs no flag, writing needs kLocalWrite (IBTA 10.6.3).
  MemoryGrant check_local(Lkey key, PdId pd, MemoryRange range, AccessFlags needed) const {
    return check(key.value, pd, range, needed);
  }
  // Use by the peer: `needed` is kRemoteRead, kRemoteWrite or kRemoteAtomic. Callers pass no
  // zero-length READ or WRITE here (IBTA C9-88).
  MemoryGrant check_remote(Rkey key, PdId pd, MemoryRange range, AccessFlags needed) const {
    return check(key.value, pd, range, needed);
  }

 private:
  static constexpr uint32_t kChunkEntries = 1024;
  static constexpr uint32_t kChunkCount = (1u << 24) / kChunkEntries;
  // While fewer than this many freed indices rest, ones that were never used are taken instead.
  static constexpr uint32_t kMinimumResting = 16 * kChunkEntries;
  static constexpr uint32_t kNoIndex = 0xffffffff;

  struct Entry {
    std::byte* address = nullptr;
    uint64_t length = 0;
    uint64_t iova = 0;
    PdId pd;
    AccessFlags access = 0;
    uint32_t next_free = kNoIndex;
    uint8_t key = 0;
    bool live = false;
  };
  using Chunk = std::array<Entry, kChunkEntries>;

  MemoryGrant check(uint32_t key, PdId pd, MemoryRange range, AccessFlags needed) const;
  const Entry* find(uint32_t key) const;
  Entry& entry_at(uint32_t index) {
    return (*chunks_[index / kChunkEntries])[index % kChunkEntries];
  }
  uint32_t take_index();
  bool add_chunk();
  uint64_t next_random();

  MemoryLimits limits_;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // by index / kChunkEntries; null until needed
  uint64_t random_state_;
  uint32_t next_chunk_;      // the chunk that add_chunk makes
  uint32_t chunks_left_;     // that add_chunk may still make
  uint32_t fresh_next_ = 0;  // indices of the newest chunk that were never used:
  uint32_t fresh_end_ = 0;   // [fresh_next_, fresh_end_)
  uint32_t live_regions_ = 0;
  // FIFO of freed indices, linked through Entry::next_free.
  uint32_t free_head_ = kNoIndex;
  uint32_t free_tail_ = kNoIndex;
  uint32_t free_count_ = 0;
};

inline const MemoryTable::Entry* MemoryTable::find(uint32_t key) const {
  const uint32_t index = key >> 8;
  const Chunk* chunk = chunks_[index / kChunkEntries].get();
  if (chunk == nullptr) return nullptr;
  const Entry& entry = (*chunk)[index % kChunkEntries];
  return entry.live && entry.key == static_cast<uint8_t>(key) ? &entry : nullptr;
}

inline MemoryGrant MemoryTable::check(uint32_t key, PdId pd, MemoryRange range,
                                      AccessFlags needed) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return {nullptr, MemoryRefusal::kUnknownKey};
  if (entry->pd != pd) return {nullptr, MemoryRefusal::kWrongDomain};
  // The offset wraps to a huge one when the address lies below the region.
  const uint64_t offset = range.address - entry->iova;
  if (offset > entry->length || range.length > entry->length - offset) {
    return {nullptr, MemoryRefusal::kOutOfBounds};
  }
  if ((entry->access & needed) != needed) return {nullptr, MemoryRefusal::kNoAccess};
  return {entry->address + offset, MemoryRefusal::kNone};
}

}  // namespace uroce::transport
