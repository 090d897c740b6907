// The CRC one bit at a time, as the polynomial is written down: what every engine must equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace uroce::tests {

inline uint32_t reference_crc(uint32_t state, std::span<const std::byte> data) {
  for (const std::byte byte : data) {
    state ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      state = (state & 1) != 0 ? (state >> 1) ^ 0xEDB88320 : state >> 1;
    }
  }
  return state;
}

}  // namespace uroce::tests
