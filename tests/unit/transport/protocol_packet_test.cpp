// PROTOCOL.md 2, 3 and 5 through an HCA: reserved bits, and the length classes of both directions.
#include "tests/catch.hpp"
#include "tests/unit/transport/lone_hca.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

namespace {

constexpr uint32_t kMtu = 256;

// The transcript of a fresh HCA that gets `packets`, after the last of them.
Transcript answer(const std::vector<HandMade>& packets) {
  LoneHca lone;
  REQUIRE(lone.post_receive(4096) == PostError::kNone);
  Transcript last;
  for (HandMade packet : packets) {
    packet.reth.virtual_address += lone.address();
    packet.reth.rkey = lone.rkey();
    last = lone.in(packet);
  }
  CHECK(lone.guards_intact());
  return last;
}

HandMade first(uint8_t opcode, size_t payload, uint32_t dma_length = 0) {
  return {.opcode = opcode, .psn = 100, .payload = payload, .reth = {0, {}, dma_length}};
}
HandMade next(uint8_t opcode, uint32_t psn, size_t payload) {
  return {.opcode = opcode, .psn = psn, .payload = payload};
}

const Transcript kInvalid = {"< NAK(1) 100"};

}  // namespace

TEST_CASE("a packet that parse refuses is counted under its reason and answered by nothing") {
  LoneHca lone;
  std::vector<std::byte> bytes = lone.encode({.opcode = opcode::kSendOnly, .psn = 100});
  bytes[0] = std::byte{0x15};
  CHECK(lone.in(bytes).empty());
  CHECK(lone.drops(DropReason::kUnknownOpcode) == 1);
  bytes[0] = std::byte{opcode::kWriteOnly};
  CHECK(lone.in(bytes).empty());
  CHECK(lone.drops(DropReason::kTruncatedPacket) == 1);
  CHECK_FALSE(lone.in_error());
}

TEST_CASE("reserved bits, FECN, BECN and either MigReq do not change what a packet means") {
  LoneHca lone;
  std::vector<std::byte> bytes = lone.encode({.opcode = opcode::kWriteOnly,
                                              .psn = 100,
                                              .payload = 8,
                                              .reth = {lone.address(), lone.rkey(), 8}});
  bytes[1] &= ~std::byte{0x40};
  bytes[4] = std::byte{0xff};
  bytes[8] |= std::byte{0x7f};
  CHECK(lone.in(bytes) == Transcript{"< ACK 100"});
  CHECK(lone.region()[0] == std::byte{0xa0});
}

TEST_CASE("what is sent has MigReq set and reserved bits clear") {
  LoneHca lone;
  REQUIRE(lone.post(SendOpcode::kSend, 8).size() == 1);
  const std::vector<std::byte>& request = lone.sent[0].bytes;
  CHECK((request[1] & std::byte{0x4f}) == std::byte{0x40});
  CHECK(request[4] == std::byte{0});
  CHECK((request[8] & std::byte{0x7f}) == std::byte{0});
  REQUIRE(lone.in({.opcode = opcode::kReadRequest,
                   .psn = 100,
                   .reth = {lone.address(), lone.rkey(), 8}})
              .size() == 1);
  const std::vector<std::byte>& response = lone.sent[0].bytes;
  CHECK((response[1] & std::byte{0x4f}) == std::byte{0x40});
  CHECK(response[4] == std::byte{0});
  CHECK(response[8] == std::byte{0});
}

TEST_CASE("an ONLY of 0 to MTU bytes is accepted and of more refused") {
  CHECK(answer({first(opcode::kSendOnly, 0)}) == Transcript{"< ACK 100"});
  CHECK(answer({first(opcode::kSendOnly, kMtu)}) == Transcript{"< ACK 100"});
  CHECK(answer({first(opcode::kSendOnly, kMtu + 1)}) == kInvalid);
  CHECK(answer({first(opcode::kWriteOnly, 0, 0)}) == Transcript{"< ACK 100"});
  CHECK(answer({first(opcode::kWriteOnly, kMtu, kMtu)}) == Transcript{"< ACK 100"});
  CHECK(answer({first(opcode::kWriteOnly, kMtu + 1, kMtu + 1)}) == kInvalid);
}

TEST_CASE("a FIRST that is not exactly the path MTU is refused") {
  CHECK(answer({first(opcode::kSendFirst, kMtu)}) == Transcript{"< ACK 100"});
  for (const size_t length : {size_t{0}, size_t{1}, size_t{kMtu - 1}, size_t{kMtu + 4}}) {
    CAPTURE(length);
    CHECK(answer({first(opcode::kSendFirst, length)}) == kInvalid);
    CHECK(answer({first(opcode::kWriteFirst, length, 2 * kMtu)}) == kInvalid);
  }
}

TEST_CASE("a MIDDLE that is not exactly the path MTU is refused") {
  const auto middle = [](size_t length) {
    return answer({first(opcode::kSendFirst, kMtu), next(opcode::kSendMiddle, 101, length)});
  };
  CHECK(middle(kMtu) == Transcript{"< ACK 101"});
  CHECK(middle(kMtu - 4) == Transcript{"< NAK(1) 101"});
  CHECK(middle(kMtu + 4) == Transcript{"< NAK(1) 101"});
  CHECK(middle(0) == Transcript{"< NAK(1) 101"});
}

TEST_CASE("a LAST of 1 to MTU bytes is accepted, an empty or longer one refused") {
  const auto last = [](size_t length) {
    return answer({first(opcode::kSendFirst, kMtu), next(opcode::kSendLast, 101, length)});
  };
  CHECK(last(1) == Transcript{"< ACK 101"});
  CHECK(last(kMtu) == Transcript{"< ACK 101"});
  CHECK(last(0) == Transcript{"< NAK(1) 101"});
  CHECK(last(kMtu + 1) == Transcript{"< NAK(1) 101"});
}

TEST_CASE("packets that do not follow each other as one message are refused") {
  CHECK(answer({next(opcode::kSendMiddle, 100, kMtu)}) == kInvalid);
  CHECK(answer({next(opcode::kSendLast, 100, 8)}) == kInvalid);
  CHECK(answer({next(opcode::kWriteLast, 100, 8)}) == kInvalid);
  CHECK(answer({first(opcode::kSendFirst, kMtu), next(opcode::kWriteLast, 101, 8)}) ==
        Transcript{"< NAK(1) 101"});
  CHECK(answer({first(opcode::kSendFirst, kMtu), next(opcode::kSendOnly, 101, 8)}) ==
        Transcript{"< NAK(1) 101"});
  CHECK(answer({first(opcode::kWriteFirst, kMtu, 2 * kMtu), next(opcode::kSendLast, 101, kMtu)}) ==
        Transcript{"< NAK(1) 101"});
  HandMade read = next(opcode::kReadRequest, 101, 0);
  read.reth.dma_length = 8;
  CHECK(answer({first(opcode::kSendFirst, kMtu), read}) == Transcript{"< NAK(1) 101"});
}

TEST_CASE("a WRITE whose packets do not add up to its RETH length is refused") {
  CHECK(answer({first(opcode::kWriteOnly, 8, 9)}) == kInvalid);
  CHECK(answer({first(opcode::kWriteOnly, 8, 7)}) == kInvalid);
  const auto two = [](size_t length) {
    return answer(
        {first(opcode::kWriteFirst, kMtu, kMtu + 8), next(opcode::kWriteLast, 101, length)});
  };
  CHECK(two(8) == Transcript{"< ACK 101"});
  CHECK(two(7) == Transcript{"< NAK(1) 101"});
  CHECK(two(9) == Transcript{"< NAK(1) 101"});
  // More in the middle than the whole message may have.
  CHECK(answer({first(opcode::kWriteFirst, kMtu, kMtu + 8),
                next(opcode::kWriteMiddle, 101, kMtu)}) == Transcript{"< NAK(1) 101"});
}

TEST_CASE("a RETH length above 2^31 is an invalid request, at 2^31 the region decides") {
  CHECK(answer({first(opcode::kWriteFirst, kMtu, (1u << 31) + 1)}) == kInvalid);
  CHECK(answer({first(opcode::kWriteFirst, kMtu, 1u << 31)}) == Transcript{"< NAK(2) 100"});
  CHECK(answer({first(opcode::kReadRequest, 0, (1u << 31) + 1)}) == kInvalid);
  CHECK(answer({first(opcode::kReadRequest, 0, 1u << 31)}) == Transcript{"< NAK(2) 100"});
}

TEST_CASE("a refused packet leaves no byte behind") {
  LoneHca lone;
  REQUIRE(lone.post_receive(4096) == PostError::kNone);
  CHECK(lone.in(first(opcode::kSendOnly, kMtu + 1)) == kInvalid);
  CHECK(lone.untouched());
  CHECK(lone.in_error());
}

TEST_CASE("a READ response whose length is not what its place asks for fails the READ") {
  const auto response = [](uint8_t code, uint32_t read_length, size_t payload) {
    LoneHca lone;
    REQUIRE(lone.post(SendOpcode::kRdmaRead, read_length).size() == 1);
    CHECK(lone.in({.opcode = code, .psn = 200, .payload = payload}).empty());
    CHECK(lone.guards_intact());
    const auto completion = lone.completion();
    return completion ? completion->status : CompletionStatus::kGeneralError;
  };
  using enum CompletionStatus;
  CHECK(response(opcode::kReadResponseOnly, 8, 8) == kSuccess);
  CHECK(response(opcode::kReadResponseOnly, 0, 0) == kSuccess);
  CHECK(response(opcode::kReadResponseOnly, 8, 7) == kBadResponseError);
  CHECK(response(opcode::kReadResponseOnly, 8, 9) == kBadResponseError);
  CHECK(response(opcode::kReadResponseOnly, 8, 0) == kBadResponseError);
  CHECK(response(opcode::kReadResponseOnly, 0, 4) == kBadResponseError);
  CHECK(response(opcode::kReadResponseFirst, 2 * kMtu, kMtu - 4) == kBadResponseError);
  CHECK(response(opcode::kReadResponseFirst, 2 * kMtu, 2 * kMtu) == kBadResponseError);
}
