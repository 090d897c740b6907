// CPUID and XGETBV behind the names of cpu.hpp.
#include "icrc/cpu.hpp"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>

namespace uroce::icrc {
namespace {

struct Registers {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
};

// All zero when the CPU does not know the leaf.
Registers cpuid(uint32_t leaf) {
  Registers out;
  if (__get_cpuid_count(leaf, 0, &out.eax, &out.ebx, &out.ecx, &out.edx) == 0) {
    return {};
  }
  return out;
}

constexpr bool has(uint32_t word, uint32_t bits) {
  return (word & bits) == bits;
}

// Whether the operating system saves these register states (XCR0). Needs OSXSAVE.
bool has_states(uint64_t states) {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return ((uint64_t{high} << 32 | low) & states) == states;
}

}  // namespace

bool cpu_has_pclmulqdq() {
  constexpr uint64_t kSseAndAvxStates = 0x06;
  return has(cpuid(1).ecx, bit_PCLMUL | bit_SSE4_1 | bit_AVX | bit_OSXSAVE) &&
         has_states(kSseAndAvxStates);
}

bool cpu_has_vpclmulqdq() {
  constexpr uint64_t kAvx512States = 0xe0;  // masks, upper halves, upper sixteen registers
  if (!cpu_has_pclmulqdq() || !has_states(kAvx512States)) {
    return false;
  }
  const Registers features = cpuid(7);
  return has(features.ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_BMI2) &&
         has(features.ecx, bit_VPCLMULQDQ);
}

}  // namespace uroce::icrc

#else

namespace uroce::icrc {

bool cpu_has_pclmulqdq() {
  return false;
}
bool cpu_has_vpclmulqdq() {
  return false;
}

}  // namespace uroce::icrc

#endif
