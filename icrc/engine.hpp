// What each engine file offers to the dispatcher.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::icrc {

inline constexpr size_t kMaskedSize = 64;  // room for the headers that carry masked fields

struct EngineFunctions {
  uint32_t (*update)(uint32_t state, const std::byte* data, size_t size);
  uint32_t (*update_copy)(uint32_t state, std::byte* destination, const std::byte* source,
                          size_t size);
  // Over data with some bits taken as ones: bit by bit, data | ones. `ones` has kMaskedSize bytes,
  // `size` is at most that and at least 16.
  uint32_t (*update_masked)(uint32_t state, const std::byte* data, const uint8_t* ones,
                            size_t size);
};

extern const EngineFunctions kPortableFunctions;
extern const EngineFunctions kPclmulqdqFunctions;   // only where cpu_has_pclmulqdq()
extern const EngineFunctions kVpclmulqdqFunctions;  // only where cpu_has_vpclmulqdq()

// What the current engine offers.
const EngineFunctions& engine_in_use();

}  // namespace uroce::icrc
