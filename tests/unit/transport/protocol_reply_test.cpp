// PROTOCOL.md 20, 21 and 23: NAKs that must be sent, message sequence numbers, syndromes.
#include "tests/catch.hpp"
#include "tests/unit/transport/lone_hca.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

namespace {

uint32_t msn_of(const LoneHca& lone, size_t index = 0) {
  return lone.sent.at(index).view().aeth.msn;
}

// The status with which a SEND ends when the peer answers with this AETH syndrome.
std::optional<CompletionStatus> send_answered_by(uint8_t syndrome) {
  LoneHca lone;
  REQUIRE(lone.post(SendOpcode::kSend, 8) == Transcript{"< SEND_ONLY 200 8B ack"});
  lone.in({.opcode = opcode::kAcknowledge, .psn = 200, .aeth = {syndrome, 1}});
  const auto completion = lone.completion();
  return completion ? std::optional(completion->status) : std::nullopt;
}

}  // namespace

TEST_CASE("a refusal is NAKed though no receive was ever posted") {
  LoneHca lone;
  CHECK(lone.in({.opcode = opcode::kWriteOnly,
                 .psn = 100,
                 .payload = 8,
                 .reth = {lone.address(), {0x1234}, 8}}) == Transcript{"< NAK(2) 100"});
  CHECK(lone.completion() == std::nullopt);
  CHECK(lone.in_error());
  CHECK(lone.out().empty());
}

TEST_CASE("a READ whose region goes away before its response is NAKed, without data") {
  LoneHca lone;
  lone.arrive(
      {.opcode = opcode::kReadRequest, .psn = 100, .reth = {lone.address(), lone.rkey(), 1000}});
  REQUIRE(lone.side.hca.deregister_region(lone.key));
  CHECK(lone.out() == Transcript{"< NAK(2) 100"});
  CHECK(lone.in_error());
}

TEST_CASE("a READ whose region goes away between responses ends with a NAK at the missing one") {
  LoneHca lone;
  lone.arrive(
      {.opcode = opcode::kReadRequest, .psn = 100, .reth = {lone.address(), lone.rkey(), 1000}});
  REQUIRE(lone.side.hca.poll_transmit(lone.side, 1, lone.now) == 1);
  REQUIRE(lone.side.hca.deregister_region(lone.key));
  CHECK(lone.out() == Transcript{"< RDMA_READ_RESPONSE_FIRST 100 256B", "< NAK(2) 101"});
}

TEST_CASE("a SEND into a receive whose memory is gone is NAKed and fails the receive") {
  LoneHca lone;
  REQUIRE(lone.post_receive(64, 77) == PostError::kNone);
  REQUIRE(lone.side.hca.deregister_region(lone.key));
  CHECK(lone.in({.opcode = opcode::kSendOnly, .psn = 100, .payload = 8}) ==
        Transcript{"< NAK(3) 100"});
  const auto completion = lone.completion();
  REQUIRE(completion);
  CHECK(completion->wr_id == 77);
  CHECK(completion->status == CompletionStatus::kLocalProtectionError);
  CHECK(lone.untouched());
}

TEST_CASE("a WRITE whose region goes away in mid-message is NAKed at that packet") {
  LoneHca lone;
  CHECK(lone.in({.opcode = opcode::kWriteFirst,
                 .psn = 100,
                 .payload = 256,
                 .reth = {lone.address(), lone.rkey(), 512}}) == Transcript{"< ACK 100"});
  REQUIRE(lone.side.hca.deregister_region(lone.key));
  CHECK(lone.in({.opcode = opcode::kWriteLast, .psn = 101, .payload = 256}) ==
        Transcript{"< NAK(2) 101"});
  CHECK(lone.untouched(256));
}

TEST_CASE("an acknowledgement that was owed leaves before a later refusal's NAK or within it") {
  LoneHca lone;
  lone.arrive({.opcode = opcode::kWriteOnly,
               .psn = 100,
               .payload = 8,
               .reth = {lone.address(), lone.rkey(), 8}});
  lone.arrive({.opcode = opcode::kWriteOnly,
               .psn = 101,
               .payload = 8,
               .reth = {lone.address(), {0x1234}, 8}});
  const Transcript answers = lone.out();
  CHECK(answers.back() == "< NAK(2) 101");  // acknowledges 100 by its PSN
}

TEST_CASE("RECV_RDMA_WITH_IMM counts the RETH length") {
  LoneHca lone;
  REQUIRE(lone.post_receive(0) == PostError::kNone);  // its length does not matter
  lone.in({.opcode = opcode::kWriteFirst,
           .psn = 100,
           .payload = 256,
           .ack = false,
           .reth = {lone.address(), lone.rkey(), 300}});
  CHECK(lone.in({.opcode = opcode::kWriteLastImm, .psn = 101, .payload = 44, .immediate = 5}) ==
        Transcript{"< ACK 101"});
  const auto completion = lone.completion();
  REQUIRE(completion);
  CHECK(completion->opcode == CompletionOpcode::kRecvRdmaWithImm);
  CHECK(completion->byte_length == 300);
  CHECK(completion->immediate == 5);
}

TEST_CASE("MSN counts a message at its last packet") {
  LoneHca lone;
  REQUIRE(lone.post_receive(4096) == PostError::kNone);
  REQUIRE(lone.in({.opcode = opcode::kSendFirst, .psn = 100, .payload = 256}).size() == 1);
  CHECK(msn_of(lone) == 0);
  REQUIRE(lone.in({.opcode = opcode::kSendMiddle, .psn = 101, .payload = 256}).size() == 1);
  CHECK(msn_of(lone) == 0);
  REQUIRE(lone.in({.opcode = opcode::kSendLast, .psn = 102, .payload = 1}).size() == 1);
  CHECK(msn_of(lone) == 1);
}

TEST_CASE("MSN counts a READ when its request executes, before its responses have left") {
  LoneHca lone;
  lone.arrive(
      {.opcode = opcode::kReadRequest, .psn = 100, .reth = {lone.address(), lone.rkey(), 512}});
  lone.arrive({.opcode = opcode::kWriteOnly,
               .psn = 102,
               .payload = 8,
               .reth = {lone.address() + 1024, lone.rkey(), 8}});
  CHECK(lone.out() == Transcript{"< RDMA_READ_RESPONSE_FIRST 100 256B",
                                 "< RDMA_READ_RESPONSE_LAST 101 256B", "< ACK 102"});
  CHECK(msn_of(lone, 0) == 1);
  CHECK(msn_of(lone, 1) == 1);
  CHECK(msn_of(lone, 2) == 2);
}

TEST_CASE("MSN counts ATOMICs, and a duplicate does not count again") {
  LoneHca lone;
  const HandMade add{
      .opcode = opcode::kFetchAdd, .psn = 100, .atomic = {lone.address(), lone.rkey(), 1, 0}};
  REQUIRE(lone.in(add).size() == 1);
  CHECK(msn_of(lone) == 1);
  REQUIRE(lone.in(add).size() == 1);
  CHECK(msn_of(lone) == 1);
}

TEST_CASE("acknowledgements carry the credit code for no limit") {
  LoneHca lone;
  REQUIRE(lone.in({.opcode = opcode::kWriteOnly, .psn = 100}).size() == 1);
  CHECK(lone.sent[0].view().aeth.syndrome == 0x1f);
}

TEST_CASE("every credit code acknowledges") {
  for (uint8_t code = 0; code < 32; ++code) {
    CHECK(send_answered_by(code) == CompletionStatus::kSuccess);
  }
}

TEST_CASE("an RNR NAK carries the timer code of the queue pair") {
  for (uint8_t code = 0; code < 32; ++code) {
    ConnectOptions options;
    options.min_rnr_timer = code;
    LoneHca lone(options);
    REQUIRE(lone.in({.opcode = opcode::kSendOnly, .psn = 100, .payload = 8}).size() == 1);
    CHECK(lone.sent[0].view().aeth.syndrome == (0x20 | code));
    CHECK_FALSE(lone.in_error());
  }
}

TEST_CASE("each NAK code ends the request with its own status") {
  using enum CompletionStatus;
  CHECK(send_answered_by(0x61) == kRemoteInvalidRequestError);
  CHECK(send_answered_by(0x62) == kRemoteAccessError);
  CHECK(send_answered_by(0x63) == kRemoteOperationError);
}

TEST_CASE("a sequence NAK makes the requester repeat and complete nothing") {
  LoneHca lone;
  lone.post(SendOpcode::kSend, 8);
  CHECK(lone.in({.opcode = opcode::kAcknowledge, .psn = 200, .aeth = {0x60, 0}}) ==
        Transcript{"< SEND_ONLY 200 8B ack"});
  CHECK(lone.completion() == std::nullopt);
}

TEST_CASE("reserved NAK codes and reserved syndromes say nothing") {
  for (unsigned syndrome = 0x40; syndrome < 0x100; ++syndrome) {
    if (syndrome >= 0x60 && syndrome <= 0x64) continue;
    CAPTURE(syndrome);
    CHECK(send_answered_by(static_cast<uint8_t>(syndrome)) == std::nullopt);
  }
}
