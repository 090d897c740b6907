// The constants by which the carry-less multiplication engines shorten a message.
//
// A 16-byte lane of the message is the pair of its first 8 bytes (the higher powers) and its last
// 8. It may be replaced by a shorter polynomial that is equal modulo P. Two replacements are used:
// - folding: a lane `distance` bytes further on in the message, to be xored into the lane there;
// - the last step: the 96-bit polynomial whose remainder modulo P is the register at the message's
//   end, from a lane that has `distance` bytes behind it.
// Distances may be negative, for lanes that reach beyond the end of the message: whatever was
// loaded there is zero. Registers are reflected, so a carry-less product comes out one bit lower
// than its operands suggest; the constants make up for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "icrc/polynomial.hpp"

namespace uroce::icrc {

inline constexpr int kLaneSize = 16;  // bytes

struct alignas(kLaneSize) LaneConstants {
  uint64_t first;   // multiplies the lane's first 8 bytes
  uint64_t second;  // multiplies its last 8
};

constexpr LaneConstants fold_constants(int distance) {
  const int exponent = 8 * distance - 1;
  return {uint64_t{reflect(power_of_x(exponent + 64))} << 32,
          uint64_t{reflect(power_of_x(exponent))} << 32};
}

constexpr LaneConstants last_constants(int distance) {
  const int exponent = 8 * distance + 32;
  return {uint64_t{reflect(power_of_x(exponent + 64))} << 1,
          uint64_t{reflect(power_of_x(exponent))} << 1};
}

// last_constants for each distance, so laid out that the four lanes of a 64-byte block, whose
// distances are 16 apart, read four entries in a row.
class LastStepTable {
 public:
  constexpr LastStepTable() {
    for (int rest = 0; rest < kLaneSize; ++rest) {
      for (int row = 0; row < kRows; ++row) {
        rows_[rest][row] = last_constants((kFurthest - row) * kLaneSize + rest);
      }
    }
  }
  // For a lane with `distance` bytes behind it, -16 .. 111, and the three lanes after it.
  const LaneConstants* at(int distance) const {
    return &rows_[distance & (kLaneSize - 1)][kFurthest - (distance >> 4)];
  }

 private:
  static constexpr int kFurthest = 6;  // in lanes: a block, then up to 63 bytes
  static constexpr int kNearest = -4;  // a block of which nothing is in the message
  static constexpr int kRows = kFurthest - kNearest + 1;
  LaneConstants rows_[kLaneSize][kRows] = {};
};

// x^96 divided by P, without x^64, reflected in 64 bits.
constexpr uint64_t barrett_quotient() {
  uint64_t quotient = 0;  // long division: bit i of the result is the coefficient of x^i
  uint32_t remainder = kPolynomial;
  for (int power = 63; power >= 0; --power) {
    quotient |= uint64_t{remainder >> 31} << power;
    remainder = times_x(remainder);
  }
  return (reflect(quotient) << 1) | 1;
}

// P itself, reflected in 33 bits.
constexpr uint64_t barrett_polynomial() {
  return uint64_t{reflect(kPolynomial)} << 1 | 1;
}

}  // namespace uroce::icrc
