// Arithmetic modulo the CRC-32/IEEE polynomial at compile time: the engines' tables come from here.
//
// Polynomials are over GF(2). "Normal" words hold the coefficient of x^i in bit i. The CRC itself
// is reflected: a register's bit 0 is the coefficient of x^31, and bit 0 of the first byte of a
// message is its highest power.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace uroce::icrc {

inline constexpr uint32_t kPolynomial = 0x04C11DB7;  // normal, x^32 left out

template <typename Word>
constexpr Word reflect(Word word) {
  Word reflected = 0;
  for (size_t bit = 0; bit < sizeof(Word) * 8; ++bit) {
    reflected = static_cast<Word>((reflected << 1) | ((word >> bit) & 1));
  }
  return reflected;
}

constexpr uint32_t times_x(uint32_t normal) {
  return (normal << 1) ^ ((normal >> 31) != 0 ? kPolynomial : 0);
}

// The inverse of times_x: the polynomial's constant term is 1, so x has an inverse.
constexpr uint32_t divided_by_x(uint32_t normal) {
  return (normal & 1) != 0 ? ((normal ^ kPolynomial) >> 1) | 0x80000000 : normal >> 1;
}

// x^exponent modulo the polynomial, normal. The exponent may be negative.
constexpr uint32_t power_of_x(int exponent) {
  uint32_t power = 1;
  for (; exponent > 0; --exponent) {
    power = times_x(power);
  }
  for (; exponent < 0; ++exponent) {
    power = divided_by_x(power);
  }
  return power;
}

// Row 0 is the classic byte table: the register after one byte, from a register that, xored with
// the byte, is the index. Row k is row 0 followed by k zero bytes.
template <size_t kRows>
constexpr std::array<std::array<uint32_t, 256>, kRows> byte_tables() {
  std::array<std::array<uint32_t, 256>, kRows> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1) ^ ((state & 1) != 0 ? reflect(kPolynomial) : 0);
    }
    tables[0][byte] = state;
  }
  for (size_t row = 1; row < kRows; ++row) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[row - 1][byte];
      tables[row][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

}  // namespace uroce::icrc
