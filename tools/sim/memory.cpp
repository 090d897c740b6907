// Compares a host's memory with what the model believes of it.
#include "tools/sim/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>

namespace uroce::sim {
namespace {

constexpr size_t kPage = 4096;  // so that alignments of offsets and of addresses agree

}  // namespace

Memory::Memory(size_t size, Random random)
    : size_(size), storage_(size + kPage), believed_(size), pending_over_(size) {
  const auto address = reinterpret_cast<uintptr_t>(storage_.data());
  real_ = storage_.data() + (kPage - address % kPage) % kPage;
  for (size_t i = 0; i + 8 <= size; i += 8) {
    const uint64_t noise = random.next();
    std::memcpy(real_ + i, &noise, sizeof noise);
  }
  std::memcpy(believed_.data(), real_, size);
}

void Memory::store(uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  std::memcpy(real_ + offset, bytes.data(), bytes.size());
  std::memcpy(believed_.data() + offset, bytes.data(), bytes.size());
}

Memory::EffectId Memory::expect(uint64_t offset, size_t length, const std::byte* bytes) {
  const EffectId id = next_effect_++;
  effects_[id] = {offset, length, bytes};
  for (size_t i = 0; i < length; ++i) ++pending_over_[offset + i];
  return id;
}

void Memory::forget(EffectId effect) {
  const Effect& gone = effects_.at(effect);
  for (size_t i = 0; i < gone.length; ++i) --pending_over_[gone.offset + i];
  effects_.erase(effect);
}

void Memory::commit(EffectId effect) {
  if (effect == kNoEffect) return;
  const Effect& happened = effects_.at(effect);
  const std::byte* bytes = happened.bytes != nullptr ? happened.bytes : real_ + happened.offset;
  if (happened.length > 0) {
    std::memcpy(believed_.data() + happened.offset, bytes, happened.length);
  }
  forget(effect);
}

std::optional<std::string> Memory::settle(EffectId effect) {
  if (effect == kNoEffect) return std::nullopt;
  const Effect settled = effects_.at(effect);
  auto why = check(settled.offset, settled.length);
  if (settled.length > 0) {
    std::memcpy(believed_.data() + settled.offset, real_ + settled.offset, settled.length);
  }
  forget(effect);
  return why;
}

bool Memory::allowed(uint64_t offset) const {
  return std::any_of(effects_.begin(), effects_.end(), [&](const auto& entry) {
    const Effect& effect = entry.second;
    if (offset < effect.offset || offset - effect.offset >= effect.length) return false;
    return effect.bytes == nullptr || effect.bytes[offset - effect.offset] == real_[offset];
  });
}

std::optional<std::string> Memory::check(uint64_t offset, size_t length) const {
  if (length == 0 || std::memcmp(real_ + offset, believed_.data() + offset, length) == 0) {
    return std::nullopt;
  }
  for (uint64_t i = offset; i < offset + length; ++i) {
    if (real_[i] == believed_[i]) continue;
    if (pending_over_[i] > 0 && allowed(i)) continue;
    return fmt::format("byte at offset {:#x} is {:#04x}, the model has {:#04x}{}", i,
                       std::to_integer<int>(real_[i]), std::to_integer<int>(believed_[i]),
                       pending_over_[i] > 0 ? " and no pending work explains it" : "");
  }
  return std::nullopt;
}

Pool::Pool(uint64_t offset, uint64_t length) : begin_(offset), end_(offset + length) {}

std::optional<uint64_t> Pool::allocate(uint64_t length, uint64_t alignment) {
  uint64_t candidate = begin_;
  const auto place = [&](uint64_t from) {
    return alignment == 1 ? from | 1 : (from + alignment - 1) / alignment * alignment;
  };
  for (const auto& [taken, taken_end] : taken_) {
    if (place(candidate) + length + kGap <= taken) break;
    candidate = taken_end;
  }
  const uint64_t offset = place(candidate);
  if (offset + length + kGap > end_) return std::nullopt;
  taken_[offset] = offset + length + kGap;
  return offset;
}

void Pool::release(uint64_t offset) {
  assert(taken_.contains(offset));
  taken_.erase(offset);
}

}  // namespace uroce::sim
