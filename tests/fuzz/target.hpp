// What fuzz targets share: the entry point that libFuzzer and the replay driver call, and a check
// that stays on in every build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace uroce::tests {

// The rule that the current input broke, for the driver's message; libFuzzer prints a stack.
inline std::string_view broken_rule;

inline void expect(bool holds, std::string_view rule) {
  if (holds) return;
  broken_rule = rule;
  std::terminate();
}

}  // namespace uroce::tests
