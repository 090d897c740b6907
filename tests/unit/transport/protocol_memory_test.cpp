// PROTOCOL.md 18 and 24: what needs no key, what must be aligned, and ranges near overflow.
#include "tests/catch.hpp"
#include "tests/unit/transport/lone_hca.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

namespace {

const Transcript kAccessError = {"< NAK(2) 100"};
const Transcript kInvalidRequest = {"< NAK(1) 100"};

HandMade request(uint8_t opcode, Reth reth, size_t payload = 0) {
  return {.opcode = opcode, .psn = 100, .payload = payload, .reth = reth};
}

HandMade atomic(uint8_t opcode, AtomicEth eth) {
  return {.opcode = opcode, .psn = 100, .atomic = eth};
}

}  // namespace

TEST_CASE("a WRITE of nothing ignores its key and address") {
  LoneHca lone;
  CHECK(lone.in(request(opcode::kWriteOnly, {0xdead, {0xbeef}, 0})) == Transcript{"< ACK 100"});
  CHECK(lone.untouched());
}

TEST_CASE("a READ of nothing ignores its key and address") {
  LoneHca lone;
  CHECK(lone.in(request(opcode::kReadRequest, {0xdead, {0xbeef}, 0})) ==
        Transcript{"< RDMA_READ_RESPONSE_ONLY 100 0B"});
}

TEST_CASE("a WRITE of nothing with immediate data completes its receive") {
  LoneHca lone;
  REQUIRE(lone.post_receive(64) == PostError::kNone);
  HandMade write = request(opcode::kWriteOnlyImm, {0xdead, {0xbeef}, 0});
  write.immediate = 0x01020304;
  CHECK(lone.in(write) == Transcript{"< ACK 100"});
  const auto completion = lone.completion();
  REQUIRE(completion);
  CHECK(completion->opcode == CompletionOpcode::kRecvRdmaWithImm);
  CHECK(completion->byte_length == 0);
  CHECK(completion->immediate == 0x01020304);
}

TEST_CASE("one byte more needs the key") {
  CHECK(LoneHca().in(request(opcode::kWriteOnly, {0xdead, {0xbeef}, 1}, 1)) == kAccessError);
  CHECK(LoneHca().in(request(opcode::kReadRequest, {0xdead, {0xbeef}, 1})) == kAccessError);
}

TEST_CASE("an aligned ATOMIC is executed and answers with the original") {
  LoneHca lone;
  lone.word_at(8) = 41;
  CHECK(lone.in(atomic(opcode::kFetchAdd, {lone.address() + 8, lone.rkey(), 1, 0})) ==
        Transcript{"< ATOMIC_ACKNOWLEDGE 100"});
  CHECK(lone.sent[0].view().atomic_ack_eth.original == 41);
  CHECK(lone.word_at(8) == 42);
}

TEST_CASE("an ATOMIC at any address that is no multiple of 8 is an invalid request") {
  for (uint64_t offset = 1; offset < 8; ++offset) {
    for (const uint8_t code : {opcode::kFetchAdd, opcode::kCompareSwap}) {
      LoneHca lone;
      CAPTURE(offset, code);
      CHECK(lone.in(atomic(code, {lone.address() + offset, lone.rkey(), 1, 0})) == kInvalidRequest);
      CHECK(lone.untouched());
      CHECK(lone.in_error());
    }
  }
}

TEST_CASE("an ATOMIC on a word that is partly outside its region is refused") {
  LoneHca lone;
  CHECK(lone.in(atomic(opcode::kFetchAdd,
                       {lone.address() + LoneHca::kMemory, lone.rkey(), 1, 0})) == kAccessError);
  CHECK(lone.guards_intact());

  LoneHca other;
  const Lkey short_key = other.side.register_memory(other.region().first(12), LoneHca::kAll);
  CHECK(other.in(atomic(opcode::kCompareSwap, {other.address() + 8, {short_key.value}, 1, 0})) ==
        kAccessError);
  CHECK(other.untouched());
}

TEST_CASE("ranges that leave the region, even around 2^64, are refused for WRITE and READ") {
  struct Range {
    uint64_t offset;  // from the region's start, modulo 2^64
    uint32_t length;
  };
  const uint64_t size = LoneHca::kMemory;
  const Range ranges[] = {{size, 1},
                          {size - 4, 8},
                          {0ull - 1, 1},
                          {0ull - 1, 2},
                          {0ull - 4, 8},
                          {0, static_cast<uint32_t>(size + 1)},
                          {1, static_cast<uint32_t>(size)},
                          {1ull << 63, 8},
                          {0ull - (1ull << 31), 1u << 31}};
  for (const Range& range : ranges) {
    CAPTURE(range.offset, range.length);
    LoneHca lone;
    const Reth reth{lone.address() + range.offset, lone.rkey(), range.length};
    CHECK(lone.in(request(opcode::kReadRequest, reth)) == kAccessError);
    LoneHca other;
    const Reth write{other.address() + range.offset, other.rkey(), range.length};
    const bool one_packet = range.length <= 256;
    CHECK(other.in(request(one_packet ? opcode::kWriteOnly : opcode::kWriteFirst, write,
                           one_packet ? range.length : 256)) == kAccessError);
    CHECK(other.untouched());
    CHECK(other.guards_intact());
  }
}

TEST_CASE("addresses whose end wraps around 2^64 are refused") {
  for (const uint64_t address : {~0ull, 0ull - 8, 0ull - 255}) {
    LoneHca lone;
    CAPTURE(address);
    CHECK(lone.in(request(opcode::kWriteOnly, {address, lone.rkey(), 256}, 256)) == kAccessError);
    CHECK(LoneHca().in(request(opcode::kReadRequest, {address, lone.rkey(), 0x7fffffff})) ==
          kAccessError);
  }
}

TEST_CASE("the whole region and its last byte can be written and read") {
  LoneHca lone;
  const uint64_t last = lone.address() + LoneHca::kMemory - 1;
  CHECK(lone.in(request(opcode::kWriteOnly, {last, lone.rkey(), 1}, 1)) == Transcript{"< ACK 100"});
  CHECK(lone.region().back() == std::byte{0xa0});
  CHECK(lone.guards_intact());
  HandMade read = request(opcode::kReadRequest, {lone.address(), lone.rkey(), LoneHca::kMemory});
  read.psn = 101;
  CHECK(lone.in(read).size() == LoneHca::kMemory / 256);
}

TEST_CASE("a duplicate READ outside the original's range is dropped in silence") {
  LoneHca lone;
  const auto read = [&lone](uint64_t offset, uint32_t length, uint32_t psn = 100) {
    HandMade made = request(opcode::kReadRequest, {lone.address() + offset, lone.rkey(), length});
    made.psn = psn;
    return lone.in(made);
  };
  REQUIRE(read(1024, 512) ==
          Transcript{"< RDMA_READ_RESPONSE_FIRST 100 256B", "< RDMA_READ_RESPONSE_LAST 101 256B"});
  CHECK(read(1020, 512).empty());
  CHECK(read(1028, 512).empty());
  CHECK(read(0, 256).empty());
  CHECK(read(1024, 513).empty());
  CHECK(read(1024 + 0ull - (1ull << 63), 256).empty());
  CHECK(read(1024 + 256, 0xffffffff).empty());
  CHECK(read(0ull - 1, 1025).empty());
  CHECK(lone.drops(DropReason::kDuplicateRejected) == 7);
  // A part of it is executed again.
  CHECK(read(1024 + 256, 256, 101) == Transcript{"< RDMA_READ_RESPONSE_ONLY 101 256B"});
  CHECK_FALSE(lone.in_error());
}
