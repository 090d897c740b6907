// Every operation over a perfect link: data, completions and the packets that carry them.
#include <cstring>
#include <numeric>

#include "tests/catch.hpp"
#include "tests/unit/transport/two_hcas.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

namespace {

void fill(std::vector<std::byte>& memory, uint8_t seed) {
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>(seed + i * 7 + i / 251);
  }
}

bool same_bytes(const std::vector<std::byte>& a, const std::vector<std::byte>& b, size_t length) {
  return std::memcmp(a.data(), b.data(), length) == 0;
}

constexpr uint32_t kLengths[] = {0, 1, 3, 255, 256, 257, 511, 512, 768, 5000, 300'000};

}  // namespace

TEST_CASE("a SEND of one packet is acknowledged and completes on both sides") {
  TwoHcas t;
  fill(t.client_memory, 1);
  REQUIRE(t.post_receive(4096) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kSend, 100) == PostError::kNone);
  CHECK(t.run() == Transcript{"> SEND_ONLY 100 100B ack", "< ACK 100"});
  const auto sent = t.client.poll();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].wr_id == 1);
  CHECK(sent[0].status == CompletionStatus::kSuccess);
  CHECK(sent[0].opcode == CompletionOpcode::kSend);
  CHECK(sent[0].qpn == t.client.qp->qpn());
  const auto received = t.server.poll();
  REQUIRE(received.size() == 1);
  CHECK(received[0].wr_id == 1000);
  CHECK(received[0].byte_length == 100);
  CHECK(received[0].opcode == CompletionOpcode::kRecv);
  CHECK(received[0].source_qpn == t.client.qp->qpn());
  CHECK(received[0].flags == 0);
  CHECK(same_bytes(t.client_memory, t.server_memory, 100));
  CHECK(t.run_to_end().empty());
}

TEST_CASE("SEND and WRITE carry all lengths, with and without immediate data") {
  for (const uint32_t length : kLengths) {
    for (const SendOpcode opcode : {SendOpcode::kSend, SendOpcode::kSendWithImm,
                                    SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImm}) {
      CAPTURE(length, int(opcode));
      TwoHcas t;
      fill(t.client_memory, 3);
      REQUIRE(t.post_receive(1u << 20) == PostError::kNone);
      REQUIRE(t.post(opcode, length) == PostError::kNone);
      t.run();
      const auto sent = t.client.poll();
      REQUIRE(sent.size() == 1);
      CHECK(sent[0].status == CompletionStatus::kSuccess);
      CHECK(same_bytes(t.client_memory, t.server_memory, length));
      CHECK(t.server_memory[length] == std::byte{0});
      const auto received = t.server.poll();
      if (opcode == SendOpcode::kRdmaWrite) {
        CHECK(received.empty());
        continue;
      }
      REQUIRE(received.size() == 1);
      CHECK(received[0].byte_length == length);
      const bool immediate = opcode != SendOpcode::kSend;
      CHECK(received[0].flags == (immediate ? uint32_t{kWithImm} : 0u));
      CHECK(received[0].immediate == (immediate ? 0x01020304 : 0));
      CHECK(received[0].opcode == (opcode == SendOpcode::kRdmaWriteWithImm
                                       ? CompletionOpcode::kRecvRdmaWithImm
                                       : CompletionOpcode::kRecv));
    }
  }
}

TEST_CASE("a READ brings all lengths") {
  for (const uint32_t length : kLengths) {
    CAPTURE(length);
    TwoHcas t;
    fill(t.server_memory, 5);
    REQUIRE(t.post(SendOpcode::kRdmaRead, length) == PostError::kNone);
    t.run();
    const auto done = t.client.poll();
    REQUIRE(done.size() == 1);
    CHECK(done[0].status == CompletionStatus::kSuccess);
    CHECK(done[0].opcode == CompletionOpcode::kRdmaRead);
    CHECK(done[0].byte_length == length);
    CHECK(same_bytes(t.client_memory, t.server_memory, length));
    CHECK(t.client_memory[length] == std::byte{0});
    CHECK(t.run_to_end().empty());
  }
}

TEST_CASE("ATOMICs execute once and return the original value") {
  TwoHcas t;
  uint64_t word = 40;
  std::memcpy(t.server_memory.data(), &word, sizeof word);
  const Sge piece = TwoHcas::sge(t.client_memory, t.client_key, 64, 8);
  SendRequest request;
  request.sges = {&piece, 1};
  request.flags = kSignaled;
  request.remote_address = reinterpret_cast<uint64_t>(t.server_memory.data());
  request.rkey = {t.server_key.value};
  const auto result = [&t] {
    uint64_t value;
    std::memcpy(&value, t.client_memory.data() + 64, sizeof value);
    return value;
  };

  request.opcode = SendOpcode::kAtomicFetchAndAdd;
  request.compare_add = 2;
  REQUIRE(t.post(request) == PostError::kNone);
  CHECK(t.run() == Transcript{"> FETCH_ADD 100 ack", "< ATOMIC_ACKNOWLEDGE 100"});
  CHECK(result() == 40);

  request.opcode = SendOpcode::kAtomicCmpAndSwp;
  request.compare_add = 42;
  request.swap = 7;
  REQUIRE(t.post(request) == PostError::kNone);
  t.run();
  CHECK(result() == 42);

  REQUIRE(t.post(request) == PostError::kNone);  // does not match any more
  t.run();
  CHECK(result() == 7);
  std::memcpy(&word, t.server_memory.data(), sizeof word);
  CHECK(word == 7);
  CHECK(t.client.poll().size() == 3);
}

TEST_CASE("gather and scatter lists split packets at any byte") {
  TwoHcas t;
  fill(t.client_memory, 9);
  std::vector<Sge> out = {TwoHcas::sge(t.client_memory, t.client_key, 0, 100),
                          TwoHcas::sge(t.client_memory, t.client_key, 0, 0),
                          TwoHcas::sge(t.client_memory, t.client_key, 100, 413),
                          TwoHcas::sge(t.client_memory, t.client_key, 513, 1)};
  std::vector<Sge> in = {TwoHcas::sge(t.server_memory, t.server_key, 0, 7),
                         TwoHcas::sge(t.server_memory, t.server_key, 7, 300),
                         TwoHcas::sge(t.server_memory, t.server_key, 307, 207)};
  REQUIRE(t.server.qp->post_recv({.wr_id = 1, .sges = in}) == PostError::kNone);
  SendRequest request;
  request.sges = out;
  request.opcode = SendOpcode::kSend;
  request.flags = kSignaled;
  REQUIRE(t.post(request) == PostError::kNone);
  t.run();
  CHECK(t.client.poll().at(0).status == CompletionStatus::kSuccess);
  CHECK(t.server.poll().at(0).byte_length == 514);
  CHECK(same_bytes(t.client_memory, t.server_memory, 514));
}
