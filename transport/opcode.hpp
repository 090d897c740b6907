// The table of the 256 BTH opcodes (IBTA table 38, annexes A17 and A19): nothing else switches on
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace uroce::transport {

// Extension headers that follow the BTH, in wire order.
enum HeaderFlag : uint16_t {
  kDethFlag = 1 << 0,
  kRethFlag = 1 << 1,
  kAtomicEthFlag = 1 << 2,
  kAethFlag = 1 << 3,
  kAtomicAckEthFlag = 1 << 4,
  kImmediateFlag = 1 << 5,
  kIethFlag = 1 << 6,
  kXrcEthFlag = 1 << 7,  // first of all when present
};

enum class Operation : uint8_t {
  kNone,  // reserved or unsupported opcode
  kSend,
  kWrite,
  kReadRequest,
  kReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
  kCnp,
};

enum class Service : uint8_t { kRc, kUc, kRd, kUd, kCnp, kXrc, kOther };

enum class Position : uint8_t { kFirst, kMiddle, kLast, kOnly };

struct OpcodeInfo {
  std::string_view name;  // "RC_SEND_FIRST"; empty for a reserved opcode
  Operation operation = Operation::kNone;
  Service service = Service::kOther;
  Position position = Position::kOnly;
  uint16_t headers = 0;      // HeaderFlag bits
  uint8_t header_bytes = 0;  // BTH and all extension headers, and a CNP's 16 reserved bytes
  bool carries_payload = false;
  bool is_response = false;  // goes to the requester half of the destination QP

  constexpr bool has(HeaderFlag flag) const { return (headers & flag) != 0; }
  constexpr bool known() const { return operation != Operation::kNone; }
  constexpr bool starts_message() const {
    return position == Position::kFirst || position == Position::kOnly;
  }
  constexpr bool ends_message() const {
    return position == Position::kLast || position == Position::kOnly;
  }
};

extern const std::array<OpcodeInfo, 256> kOpcodes;

// RC opcodes by name; the other services differ in the top three bits.
namespace opcode {
inline constexpr uint8_t kSendFirst = 0x00, kSendMiddle = 0x01, kSendLast = 0x02,
                         kSendLastImm = 0x03, kSendOnly = 0x04, kSendOnlyImm = 0x05,
                         kWriteFirst = 0x06, kWriteMiddle = 0x07, kWriteLast = 0x08,
                         kWriteLastImm = 0x09, kWriteOnly = 0x0a, kWriteOnlyImm = 0x0b,
                         kReadRequest = 0x0c, kReadResponseFirst = 0x0d, kReadResponseMiddle = 0x0e,
                         kReadResponseLast = 0x0f, kReadResponseOnly = 0x10, kAcknowledge = 0x11,
                         kAtomicAcknowledge = 0x12, kCompareSwap = 0x13, kFetchAdd = 0x14;
}  // namespace opcode

}  // namespace uroce::transport
