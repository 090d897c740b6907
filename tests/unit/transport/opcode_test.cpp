// The opcode table: every row against rules that it was not built from.
#include "transport/opcode.hpp"

#include <set>
#include <string>

#include "tests/catch.hpp"
#include "transport/headers.hpp"

using namespace uroce::transport;

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The rules read an opcode's name, as the specification prints it.
uint16_t headers_by_name(std::string_view name) {
  uint16_t headers = 0;
  const bool response = contains(name, "RESPONSE") || contains(name, "ACKNOWLEDGE");
  if (name.starts_with("XRC_") && !response) headers |= kXrcEthFlag;
  if (name.starts_with("UD_")) headers |= kDethFlag;
  if (contains(name, "WRITE_FIRST") || contains(name, "WRITE_ONLY") ||
      contains(name, "READ_REQUEST")) {
    headers |= kRethFlag;
  }
  if (contains(name, "COMPARE_SWAP") || contains(name, "FETCH_ADD")) headers |= kAtomicEthFlag;
  if (response && !contains(name, "MIDDLE")) headers |= kAethFlag;
  if (contains(name, "ATOMIC_ACKNOWLEDGE")) headers |= kAtomicAckEthFlag;
  if (contains(name, "IMMEDIATE")) headers |= kImmediateFlag;
  if (contains(name, "INVALIDATE")) headers |= kIethFlag;
  return headers;
}

size_t bytes_by_headers(uint16_t headers) {
  constexpr size_t kSizes[] = {8, 16, 28, 4, 8, 4, 4, 4};  // in the order of HeaderFlag's bits
  size_t total = 12;
  for (size_t bit = 0; bit < std::size(kSizes); ++bit) {
    if (headers & 1u << bit) total += kSizes[bit];
  }
  return total;
}

}  // namespace

TEST_CASE("exactly the opcodes of RC, UC, UD, XRC and CNP are known") {
  std::set<size_t> known;
  for (size_t code = 0; code < 256; ++code) {
    const size_t low = code & 0x1f;
    const bool reliable = low <= 0x14 || low == 0x16 || low == 0x17;
    const bool expected = (code < 0x20 && reliable) || (code >= 0x20 && code <= 0x2b) ||
                          code == 0x64 || code == 0x65 || code == 0x81 ||
                          (code >= 0xa0 && code < 0xc0 && reliable);
    CAPTURE(code);
    CHECK(kOpcodes[code].known() == expected);
    CHECK(kOpcodes[code].name.empty() == !expected);
    if (expected) known.insert(code);
  }
  CHECK(known.size() == 23 + 12 + 2 + 1 + 23);
}

TEST_CASE("reliable datagram opcodes belong to a service that nobody serves") {
  for (size_t code = 0x40; code < 0x60; ++code) {
    CHECK(kOpcodes[code].service == Service::kRd);
    CHECK_FALSE(kOpcodes[code].known());
  }
}

TEST_CASE("each opcode's headers, position and direction are what its name says") {
  std::set<std::string_view> names;
  for (size_t code = 0; code < 256; ++code) {
    const OpcodeInfo& info = kOpcodes[code];
    if (!info.known() || info.service == Service::kCnp) continue;
    CAPTURE(info.name);
    CHECK(names.insert(info.name).second);
    CHECK(info.headers == headers_by_name(info.name));
    CHECK(info.header_bytes == bytes_by_headers(info.headers));
    CHECK(info.is_response ==
          (contains(info.name, "RESPONSE") || contains(info.name, "ACKNOWLEDGE")));
    CHECK(info.carries_payload == (contains(info.name, "SEND") || contains(info.name, "WRITE") ||
                                   contains(info.name, "RESPONSE")));
    const bool first = contains(info.name, "_FIRST"), middle = contains(info.name, "_MIDDLE");
    const bool last = contains(info.name, "_LAST");
    CHECK(info.starts_message() == (!middle && !last));
    CHECK(info.ends_message() == (!first && !middle));
    const std::string_view service = info.name.substr(0, info.name.find('_'));
    CHECK((service == "RC") == (info.service == Service::kRc));
    CHECK((service == "UC") == (info.service == Service::kUc));
    CHECK((service == "UD") == (info.service == Service::kUd));
    CHECK((service == "XRC") == (info.service == Service::kXrc));
  }
}

TEST_CASE("the named opcodes are the ones that the table names") {
  const auto name = [](uint8_t code) { return kOpcodes[code].name; };
  CHECK(name(opcode::kSendFirst) == "RC_SEND_FIRST");
  CHECK(name(opcode::kSendMiddle) == "RC_SEND_MIDDLE");
  CHECK(name(opcode::kSendLast) == "RC_SEND_LAST");
  CHECK(name(opcode::kSendLastImm) == "RC_SEND_LAST_WITH_IMMEDIATE");
  CHECK(name(opcode::kSendOnly) == "RC_SEND_ONLY");
  CHECK(name(opcode::kSendOnlyImm) == "RC_SEND_ONLY_WITH_IMMEDIATE");
  CHECK(name(opcode::kWriteFirst) == "RC_RDMA_WRITE_FIRST");
  CHECK(name(opcode::kWriteMiddle) == "RC_RDMA_WRITE_MIDDLE");
  CHECK(name(opcode::kWriteLast) == "RC_RDMA_WRITE_LAST");
  CHECK(name(opcode::kWriteLastImm) == "RC_RDMA_WRITE_LAST_WITH_IMMEDIATE");
  CHECK(name(opcode::kWriteOnly) == "RC_RDMA_WRITE_ONLY");
  CHECK(name(opcode::kWriteOnlyImm) == "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE");
  CHECK(name(opcode::kReadRequest) == "RC_RDMA_READ_REQUEST");
  CHECK(name(opcode::kReadResponseFirst) == "RC_RDMA_READ_RESPONSE_FIRST");
  CHECK(name(opcode::kReadResponseMiddle) == "RC_RDMA_READ_RESPONSE_MIDDLE");
  CHECK(name(opcode::kReadResponseLast) == "RC_RDMA_READ_RESPONSE_LAST");
  CHECK(name(opcode::kReadResponseOnly) == "RC_RDMA_READ_RESPONSE_ONLY");
  CHECK(name(opcode::kAcknowledge) == "RC_ACKNOWLEDGE");
  CHECK(name(opcode::kAtomicAcknowledge) == "RC_ATOMIC_ACKNOWLEDGE");
  CHECK(name(opcode::kCompareSwap) == "RC_COMPARE_SWAP");
  CHECK(name(opcode::kFetchAdd) == "RC_FETCH_ADD");
}

TEST_CASE("a CNP is a BTH and sixteen reserved bytes") {
  const OpcodeInfo& cnp = kOpcodes[0x81];
  CHECK(cnp.name == "CNP");
  CHECK(cnp.operation == Operation::kCnp);
  CHECK(cnp.service == Service::kCnp);
  CHECK(cnp.headers == 0);
  CHECK(cnp.header_bytes == 28);
  CHECK_FALSE(cnp.carries_payload);
  CHECK_FALSE(cnp.is_response);
}
