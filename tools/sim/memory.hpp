// One host's memory beside the model of it: every byte that changes without leave is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/sim/random.hpp"

namespace uroce::sim {

// The real bytes, which the HCA reads and writes, and the believed ones, which only the model
// changes. An *effect* is a change that some posted work may make at any time from now on: until it
// is committed a byte under it may hold either value. Everything else is canary.
class Memory {
 public:
  using EffectId = uint64_t;
  static constexpr EffectId kNoEffect = 0;

  // Both copies start with the same noise.
  Memory(size_t size, Random random);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  size_t size() const { return size_; }
  std::byte* at(uint64_t offset) { return real_ + offset; }
  std::span<const std::byte> real(uint64_t offset, size_t length) const {
    return {real_ + offset, length};
  }
  std::span<const std::byte> believed(uint64_t offset, size_t length) const {
    return std::span(believed_).subspan(offset, length);
  }

  // The application's own store: both copies change.
  void store(uint64_t offset, std::span<const std::byte> bytes);

  // `bytes` must outlive the effect; null: any value may appear there.
  EffectId expect(uint64_t offset, size_t length, const std::byte* bytes);
  // The effect has happened: its bytes are believed (for any value: what is there now).
  void commit(EffectId effect);
  // The effect may have happened, and will not from now on: what is there is believed, if allowed.
  [[nodiscard]] std::optional<std::string> settle(EffectId effect);

  // Why a byte of the range is neither as believed nor as a pending effect would leave it.
  [[nodiscard]] std::optional<std::string> check(uint64_t offset, size_t length) const;
  [[nodiscard]] std::optional<std::string> check_all() const { return check(0, size_); }

 private:
  struct Effect {
    uint64_t offset = 0;
    size_t length = 0;
    const std::byte* bytes = nullptr;
  };

  bool allowed(uint64_t offset) const;
  void forget(EffectId effect);

  size_t size_;
  std::vector<std::byte> storage_;
  std::byte* real_;
  std::vector<std::byte> believed_;
  std::vector<uint16_t> pending_over_;  // effects over each byte
  std::map<EffectId, Effect> effects_;
  EffectId next_effect_ = 1;
};

// A part of a memory from which buffers are lent, never adjacent to each other.
class Pool {
 public:
  static constexpr uint64_t kGap = 16;  // bytes of canary behind each buffer, at least

  Pool(uint64_t offset, uint64_t length);
  // Where `length` bytes are free, at an odd place if `alignment` is 1; none if the pool is full.
  std::optional<uint64_t> allocate(uint64_t length, uint64_t alignment);
  void release(uint64_t offset);

 private:
  uint64_t begin_;
  uint64_t end_;
  std::map<uint64_t, uint64_t> taken_;  // offset -> end, gap included
};

}  // namespace uroce::sim
