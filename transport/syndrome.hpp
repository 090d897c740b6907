// What the AETH syndrome says (IBTA 9.7.5.1), with the timer codes that RC puts on the wire.
#pragma once

#include <cstdint>

namespace uroce::transport {

// Bits 7:5 of the syndrome; bits 4:0 hold the credit count, the timer code or the NAK code.
//
//   | 0 | 0 0 |  C C C C C |  ACK, end-to-end credit code
//   | 0 | 0 1 |  T T T T T |  RNR NAK, timer code
//   | 0 | 1 0 |  x x x x x |  reserved
//   | 0 | 1 1 |  N N N N N |  NAK, NAK code
enum class AethKind : uint8_t { kAck, kRnrNak, kNak, kReserved };

// Codes of a NAK (IBTA table 44); greater ones are reserved.
enum class NakCode : uint8_t {
  kSequenceError = 0,
  kInvalidRequest = 1,
  kRemoteAccessError = 2,
  kRemoteOperationalError = 3,
  kInvalidRdRequest = 4,
};
inline constexpr uint8_t kNakCodeCount = 5;

inline constexpr uint8_t kNoCreditLimit = 0x1f;

constexpr AethKind aeth_kind(uint8_t syndrome) {
  switch (syndrome >> 5) {
    case 0:
      return AethKind::kAck;
    case 1:
      return AethKind::kRnrNak;
    case 3:
      return AethKind::kNak;
    default:
      return AethKind::kReserved;
  }
}

// Bits 4:0: a credit code, RNR timer code or NAK code, by the kind.
constexpr uint8_t aeth_value(uint8_t syndrome) {
  return syndrome & 0x1f;
}

constexpr uint8_t ack_syndrome(uint8_t credit_code = kNoCreditLimit) {
  return credit_code & 0x1f;
}
constexpr uint8_t rnr_nak_syndrome(uint8_t timer_code) {
  return static_cast<uint8_t>(0x20 | (timer_code & 0x1f));
}
constexpr uint8_t nak_syndrome(NakCode code) {
  return static_cast<uint8_t>(0x60 | static_cast<uint8_t>(code));
}

// Credits of a credit code below kNoCreditLimit (IBTA table 46): 0, 1, 2, 3, 4, 6, 8, 12 … 32768.
uint32_t credits_of(uint8_t credit_code);
// The greatest code whose credits do not exceed `receives`, the posted receive WQEs.
uint8_t credit_code_of(uint32_t receives);

// Wait of an RNR NAK timer code, in nanoseconds (IBTA table 45); only bits 4:0 count. Code 0 is the
// longest, 655.36 ms.
int64_t rnr_timer_ns(uint8_t code);

// Local ACK timeout, 4.096 us << code, in nanoseconds (IBTA 9.7.6.1.3). `code` is 5 bits; 0 means
// never, for which the result is 0.
constexpr int64_t ack_timeout_ns(uint8_t code) {
  return code == 0 ? 0 : int64_t{4096} << (code & 0x1f);
}

}  // namespace uroce::transport
