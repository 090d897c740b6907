// Builds the opcode table from the rows of the reliable connected service.
#include "transport/opcode.hpp"

#include <algorithm>

#include "transport/headers.hpp"

namespace uroce::transport {

namespace {

using enum Operation;
using enum Position;

// An opcode's low five bits and what they mean; the service is in the top three.
struct Row {
  uint8_t code;
  std::string_view name;  // without the service
  Operation operation;
  Position position;
  uint16_t headers = 0;
};

// All of them on RC and XRC. UC has the SENDs and WRITEs without invalidation.
constexpr Row kRows[] = {
    {0x00, "SEND_FIRST", kSend, kFirst},
    {0x01, "SEND_MIDDLE", kSend, kMiddle},
    {0x02, "SEND_LAST", kSend, kLast},
    {0x03, "SEND_LAST_WITH_IMMEDIATE", kSend, kLast, kImmediateFlag},
    {0x04, "SEND_ONLY", kSend, kOnly},
    {0x05, "SEND_ONLY_WITH_IMMEDIATE", kSend, kOnly, kImmediateFlag},
    {0x06, "RDMA_WRITE_FIRST", kWrite, kFirst, kRethFlag},
    {0x07, "RDMA_WRITE_MIDDLE", kWrite, kMiddle},
    {0x08, "RDMA_WRITE_LAST", kWrite, kLast},
    {0x09, "RDMA_WRITE_LAST_WITH_IMMEDIATE", kWrite, kLast, kImmediateFlag},
    {0x0a, "RDMA_WRITE_ONLY", kWrite, kOnly, kRethFlag},
    {0x0b, "RDMA_WRITE_ONLY_WITH_IMMEDIATE", kWrite, kOnly, kRethFlag | kImmediateFlag},
    {0x0c, "RDMA_READ_REQUEST", kReadRequest, kOnly, kRethFlag},
    {0x0d, "RDMA_READ_RESPONSE_FIRST", kReadResponse, kFirst, kAethFlag},
    {0x0e, "RDMA_READ_RESPONSE_MIDDLE", kReadResponse, kMiddle},
    {0x0f, "RDMA_READ_RESPONSE_LAST", kReadResponse, kLast, kAethFlag},
    {0x10, "RDMA_READ_RESPONSE_ONLY", kReadResponse, kOnly, kAethFlag},
    {0x11, "ACKNOWLEDGE", kAcknowledge, kOnly, kAethFlag},
    {0x12, "ATOMIC_ACKNOWLEDGE", kAtomicAcknowledge, kOnly, kAethFlag | kAtomicAckEthFlag},
    {0x13, "COMPARE_SWAP", kCompareSwap, kOnly, kAtomicEthFlag},
    {0x14, "FETCH_ADD", kFetchAdd, kOnly, kAtomicEthFlag},
    {0x16, "SEND_LAST_WITH_INVALIDATE", kSend, kLast, kIethFlag},
    {0x17, "SEND_ONLY_WITH_INVALIDATE", kSend, kOnly, kIethFlag},
};
constexpr uint8_t kLastUcCode = 0x0b;

constexpr uint8_t kRcBase = 0x00, kUcBase = 0x20, kRdBase = 0x40, kUdBase = 0x60, kXrcBase = 0xa0;
constexpr uint8_t kCnpCode = 0x81;

constexpr size_t kLongestName = 36;
struct Name {
  std::array<char, kLongestName> text{};
  uint8_t length = 0;

  constexpr void append(std::string_view piece) {
    std::copy(piece.begin(), piece.end(), text.begin() + length);
    length = static_cast<uint8_t>(length + piece.size());
  }
  constexpr std::string_view view() const { return {text.data(), length}; }
};

constexpr std::array<Name, 256> compose_names() {
  std::array<Name, 256> names{};
  const auto set = [&names](uint8_t base, std::string_view service, const Row& row) {
    names[base + row.code].append(service);
    names[base + row.code].append(row.name);
  };
  for (const Row& row : kRows) {
    set(kRcBase, "RC_", row);
    set(kXrcBase, "XRC_", row);
    if (row.code <= kLastUcCode) set(kUcBase, "UC_", row);
    if (row.operation == kSend && row.position == kOnly && row.headers != kIethFlag) {
      set(kUdBase, "UD_", row);
    }
  }
  names[kCnpCode].append("CNP");
  return names;
}

constexpr std::array<Name, 256> kNames = compose_names();

constexpr uint8_t size_of_headers(uint16_t headers) {
  size_t size = Bth::kSize;
  if (headers & kXrcEthFlag) size += XrcEth::kSize;
  if (headers & kDethFlag) size += Deth::kSize;
  if (headers & kRethFlag) size += Reth::kSize;
  if (headers & kAtomicEthFlag) size += AtomicEth::kSize;
  if (headers & kAethFlag) size += Aeth::kSize;
  if (headers & kAtomicAckEthFlag) size += AtomicAckEth::kSize;
  if (headers & kImmediateFlag) size += kImmediateSize;
  if (headers & kIethFlag) size += kIethSize;
  return static_cast<uint8_t>(size);
}

constexpr bool is_response(Operation operation) {
  return operation == kReadResponse || operation == kAcknowledge || operation == kAtomicAcknowledge;
}

constexpr OpcodeInfo describe(const Row& row, Service service) {
  uint16_t headers = row.headers;
  if (service == Service::kUd) headers |= kDethFlag;
  // Requests name the shared receive queue, responses need none (annex A14).
  if (service == Service::kXrc && !is_response(row.operation)) headers |= kXrcEthFlag;
  return {
      .name = {},
      .operation = row.operation,
      .service = service,
      .position = row.position,
      .headers = headers,
      .header_bytes = size_of_headers(headers),
      .carries_payload =
          row.operation == kSend || row.operation == kWrite || row.operation == kReadResponse,
      .is_response = is_response(row.operation),
  };
}

constexpr std::array<OpcodeInfo, 256> build() {
  std::array<OpcodeInfo, 256> table{};
  for (const Row& row : kRows) {
    table[kRcBase + row.code] = describe(row, Service::kRc);
    table[kXrcBase + row.code] = describe(row, Service::kXrc);
    if (!kNames[kUcBase + row.code].view().empty()) {
      table[kUcBase + row.code] = describe(row, Service::kUc);
    }
    if (!kNames[kUdBase + row.code].view().empty()) {
      table[kUdBase + row.code] = describe(row, Service::kUd);
    }
  }
  // Reliable datagram: assigned, built by nobody; its opcodes stay unknown.
  for (size_t code = kRdBase; code < kUdBase; ++code) table[code].service = Service::kRd;
  table[kCnpCode] = {.name = {},
                     .operation = kCnp,
                     .service = Service::kCnp,
                     .header_bytes = static_cast<uint8_t>(Bth::kSize + kCnpReservedSize)};
  for (size_t code = 0; code < table.size(); ++code) table[code].name = kNames[code].view();
  return table;
}

}  // namespace

constexpr std::array<OpcodeInfo, 256> kOpcodes = build();

}  // namespace uroce::transport
