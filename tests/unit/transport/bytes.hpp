// Byte strings as tests write them: hex in, std::vector<std::byte> out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace uroce::tests {

// "01 fe" gives {0x01, 0xfe}; blanks are ignored.
inline std::vector<std::byte> bytes(std::string_view hex) {
  std::vector<std::byte> result;
  int high = -1;
  for (const char c : hex) {
    if (c == ' ') continue;
    const int digit = c >= 'a' ? c - 'a' + 10 : c - '0';
    if (high < 0) {
      high = digit;
    } else {
      result.push_back(static_cast<std::byte>(high << 4 | digit));
      high = -1;
    }
  }
  return result;
}

}  // namespace uroce::tests
