// What each engine file offers to the dispatcher.
#pragma once

#include <cstddef>
#include <cstdint>

namespace uroce::icrc {

struct EngineFunctions {
  uint32_t (*update)(uint32_t state, const std::byte* data, size_t size);
  uint32_t (*update_copy)(uint32_t state, std::byte* destination, const std::byte* source,
                          size_t size);
};

extern const EngineFunctions kPortableFunctions;
extern const EngineFunctions kPclmulqdqFunctions;   // only where cpu_has_pclmulqdq()
extern const EngineFunctions kVpclmulqdqFunctions;  // only where cpu_has_vpclmulqdq()

}  // namespace uroce::icrc
