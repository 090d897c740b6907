// PROTOCOL.md 7 to 15: what the requester sends, repeats and completes.
#include <cstring>

#include "tests/catch.hpp"
#include "tests/unit/transport/two_hcas.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

TEST_CASE("7: PSNs wrap in the middle of SENDs, WRITEs and READs") {
  for (uint32_t start = 0xfffffa; start <= 0xffffff; ++start) {
    TwoHcas t({.client_psn = start, .server_psn = start});
    number(t.client_memory);
    number(t.server_memory);
    t.server_memory[5] = std::byte{77};
    REQUIRE(t.post_receive(4096) == PostError::kNone);
    REQUIRE(t.post(SendOpcode::kRdmaWrite, 1000) == PostError::kNone);
    REQUIRE(t.post(SendOpcode::kRdmaRead, 900) == PostError::kNone);
    REQUIRE(t.post(SendOpcode::kSend, 600) == PostError::kNone);
    t.run_to_end();
    const auto done = t.client.poll();
    REQUIRE(done.size() == 3);
    for (const Completion& each : done) CHECK(each.status == CompletionStatus::kSuccess);
    CHECK(t.server.poll().size() == 1);
    CHECK(std::memcmp(t.client_memory.data(), t.server_memory.data(), 1000) == 0);
    CHECK(t.client.hca.counters().tx_retransmitted_packets == 0);
  }
}

TEST_CASE("7: a lost packet at the PSN wrap is repeated") {
  TwoHcas t({.client_psn = 0xffffff});
  t.lose = losing({"> RDMA_WRITE_MIDDLE 0 256B"});
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 768) == PostError::kNone);
  CHECK(t.run() == Transcript{"> RDMA_WRITE_FIRST 16777215 256B", "> RDMA_WRITE_MIDDLE 0 256B lost",
                              "> RDMA_WRITE_LAST 1 256B ack", "< NAK(0) 0",
                              "> RDMA_WRITE_MIDDLE 0 256B", "> RDMA_WRITE_LAST 1 256B ack",
                              "< ACK 1"});
  CHECK(t.client.poll().size() == 1);
}

TEST_CASE("8: a repetition starts at the right byte of the gather list") {
  TwoHcas t;
  number(t.client_memory);
  const Sge pieces[] = {TwoHcas::sge(t.client_memory, t.client_key, 0, 300),
                        TwoHcas::sge(t.client_memory, t.client_key, 300, 5),
                        TwoHcas::sge(t.client_memory, t.client_key, 305, 700)};
  t.lose = losing({"> RDMA_WRITE_MIDDLE 101 256B", "> RDMA_WRITE_LAST 103 237B ack"});
  REQUIRE(t.post(plain(t, SendOpcode::kRdmaWrite, pieces)) == PostError::kNone);
  t.run_to_end();
  CHECK(t.client.poll().at(0).status == CompletionStatus::kSuccess);
  CHECK(std::memcmp(t.client_memory.data(), t.server_memory.data(), 1005) == 0);
}

TEST_CASE("9: retry_cnt counts: after so many timeouts the WR fails with RETRY_EXC") {
  for (const uint8_t retries : std::initializer_list<uint8_t>{0, 1, 3, 7}) {
    CAPTURE(int(retries));
    TwoHcas t({.ack_timeout = 8, .retry_count = retries});  // 1.048576 ms
    t.lose = [](const Frame&) { return true; };
    REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
    const Instant start = t.now;
    CHECK(t.run_to_end().size() == 1u + retries);
    CHECK(t.now - start >= (retries + 1) * int64_t{1'048'576});
    CHECK(t.now - start <= 4 * (retries + 1) * int64_t{1'048'576});
    const auto done = t.client.poll();
    REQUIRE(done.size() == 1);
    CHECK(done[0].status == CompletionStatus::kRetryExceededError);
    CHECK(t.client.qp->state() == QpState::kError);
    CHECK(t.client.hca.counters().local_ack_timeout_err == 1u + retries);
  }
}

TEST_CASE("9: progress gives all retries back") {
  TwoHcas t({.retry_count = 1});
  int copies = 0;
  t.lose = [&copies](const Frame& frame) { return !frame.from_client && copies++ % 2 == 0; };
  for (int i = 0; i < 5; ++i) {
    REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
    t.run_to_end();
  }
  CHECK(t.client.poll().size() == 5);
  CHECK(t.client.qp->state() == QpState::kRts);
}

TEST_CASE("9: timeout 0 waits for ever") {
  TwoHcas t({.ack_timeout = 0});
  t.lose = [](const Frame&) { return true; };
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, 0) == PostError::kNone);
  CHECK(t.run() ==
        Transcript{"> RDMA_WRITE_ONLY 100 8B ack lost", "> RDMA_WRITE_ONLY 101 8B ack lost"});
  CHECK(t.client.hca.next_deadline() == Instant::never());
}

TEST_CASE("10: rnr_retry counts, and RNR_RETRY_EXC ends it") {
  for (const uint8_t retries : std::initializer_list<uint8_t>{0, 2, 6}) {
    TwoHcas t({.rnr_retry = retries, .min_rnr_timer = 5});
    REQUIRE(t.post(SendOpcode::kSend, 8) == PostError::kNone);
    CHECK(t.run_to_end().size() == 2u * (retries + 1u));
    const auto done = t.client.poll();
    REQUIRE(done.size() == 1);
    CHECK(done[0].status == CompletionStatus::kRnrRetryExceededError);
    CHECK(t.server.qp->state() == QpState::kRts);
  }
}

TEST_CASE("10: rnr_retry 7 is infinite") {
  TwoHcas t({.rnr_retry = 7});
  REQUIRE(t.post(SendOpcode::kSend, 8) == PostError::kNone);
  for (int i = 0; i < 100; ++i) {
    t.run();
    REQUIRE(t.advance());
  }
  CHECK(t.client.hca.counters().rnr_nak_retry_err >= 50);
  REQUIRE(t.post_receive(8) == PostError::kNone);
  t.run_to_end();
  CHECK(t.client.poll().at(0).status == CompletionStatus::kSuccess);
  CHECK(t.client.hca.counters().local_ack_timeout_err == 0);
}

TEST_CASE("10: an RNR NAK's timer is obeyed, and the retransmission timer does not cut it short") {
  TwoHcas t({.ack_timeout = 1, .min_rnr_timer = 0});  // 8.192 us against 655.36 ms
  REQUIRE(t.post(SendOpcode::kSend, 8) == PostError::kNone);
  CHECK(t.run() == Transcript{"> SEND_ONLY 100 8B ack", "< RNR(0) 100"});
  REQUIRE(t.post_receive(8) == PostError::kNone);
  t.advance_by(655'359'999);
  CHECK(t.run().empty());
  t.advance_by(1);
  CHECK(t.run() == Transcript{"> SEND_ONLY 100 8B ack", "< ACK 100"});
  CHECK(t.client.hca.counters().local_ack_timeout_err == 0);
}

TEST_CASE("10: a second RNR NAK is no further try, but when the wait is over it is obeyed") {
  TwoHcas t({.rnr_retry = 1});
  REQUIRE(t.post(SendOpcode::kSend, 8) == PostError::kNone);
  t.client.hca.poll_transmit(t.client, 64, t.now);
  t.deliver(t.take());
  t.server.hca.poll_transmit(t.server, 64, t.now);
  const Frame rnr_nak = t.take();
  t.deliver(rnr_nak);
  t.advance_by(5000);
  t.deliver(rnr_nak);  // changes nothing
  t.now = t.now + 5000;
  t.deliver(rnr_nak);  // waits again
  t.advance_by(9999);
  CHECK(t.step().empty());
  t.advance_by(1);
  t.deliver(rnr_nak);  // and again
  CHECK(t.step().empty());
  REQUIRE(t.post_receive(8) == PostError::kNone);
  t.advance_by(10'000);
  CHECK(t.run() == Transcript{"> SEND_ONLY 100 8B ack", "< ACK 100"});
}

TEST_CASE("10: an RNR NAK is obeyed though a sequence NAK came just before it") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kSend, 300) == PostError::kNone);
  t.client.hca.poll_transmit(t.client, 64, t.now);
  const Frame first = t.take();
  t.deliver(t.take());
  t.server.hca.poll_transmit(t.server, 64, t.now);
  t.deliver(first);
  t.server.hca.poll_transmit(t.server, 64, t.now);
  t.deliver(t.take());  // the sequence NAK
  t.deliver(t.take());  // the RNR NAK, before the repetition left
  CHECK(t.step().empty());
  t.advance_by(rnr_timer_ns(1));
  CHECK(t.step().size() == 2);
}

TEST_CASE("10: a sequence NAK that comes late does not cut an RNR wait short") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kSend, 300) == PostError::kNone);
  t.client.hca.poll_transmit(t.client, 64, t.now);
  const Frame first = t.take();
  t.deliver(t.take());
  t.server.hca.poll_transmit(t.server, 64, t.now);
  const Frame sequence_nak = t.take();
  t.deliver(first);
  t.server.hca.poll_transmit(t.server, 64, t.now);
  t.deliver(t.take());  // the RNR NAK
  t.deliver(sequence_nak);
  t.advance_by(rnr_timer_ns(1) - 1);
  CHECK(t.step().empty());
  t.advance_by(1);
  CHECK(t.step().size() == 2);
}

TEST_CASE("10: an RNR NAK acknowledges what came before it") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kSend, 8) == PostError::kNone);
  t.step();
  t.step();
  const auto done = t.client.poll();
  REQUIRE(done.size() == 1);
  CHECK(done[0].opcode == CompletionOpcode::kRdmaWrite);
}

TEST_CASE("11: a READ whose responses were lost is restarted with what remains") {
  TwoHcas t({.max_rd_atomic = 1});
  number(t.server_memory);
  t.lose = losing({"< RDMA_READ_RESPONSE_MIDDLE 101 256B"});
  REQUIRE(t.post(SendOpcode::kRdmaRead, 1000) == PostError::kNone);
  CHECK(t.run() ==
        Transcript{"> RDMA_READ_REQUEST 100 1000B ack", "< RDMA_READ_RESPONSE_FIRST 100 256B",
                   "< RDMA_READ_RESPONSE_MIDDLE 101 256B lost",
                   "< RDMA_READ_RESPONSE_MIDDLE 102 256B", "< RDMA_READ_RESPONSE_LAST 103 232B",
                   "> RDMA_READ_REQUEST 101 744B ack", "< RDMA_READ_RESPONSE_FIRST 101 256B",
                   "< RDMA_READ_RESPONSE_MIDDLE 102 256B", "< RDMA_READ_RESPONSE_LAST 103 232B"});
  CHECK(t.client.poll().at(0).status == CompletionStatus::kSuccess);
  CHECK(std::memcmp(t.client_memory.data(), t.server_memory.data(), 1000) == 0);
  CHECK(t.client.hca.counters().implied_nak_seq_err == 2);
}

TEST_CASE("8: a WRITE behind a restarted READ starts at the first byte of its list") {
  TwoHcas t;
  number(t.client_memory);
  t.lose = losing({"< RDMA_READ_RESPONSE_MIDDLE 101 256B", "> RDMA_WRITE_ONLY 103 8B ack"});
  REQUIRE(t.post(SendOpcode::kRdmaRead, 600) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, kSignaled, 4096) == PostError::kNone);
  t.run_to_end();
  const auto done = t.client.poll();
  REQUIRE(done.size() == 2);
  CHECK(done[1].status == CompletionStatus::kSuccess);
}

TEST_CASE("11: only the first implied NAK repeats at once, later ones wait for the timer") {
  TwoHcas t;
  int lost = 0;
  t.lose = [&lost](const Frame& frame) {
    return describe(frame).starts_with("< RDMA_READ_RESPONSE_FIRST") && lost++ < 2;
  };
  REQUIRE(t.post(SendOpcode::kRdmaRead, 512) == PostError::kNone);
  const Transcript before_timer = t.run();
  CHECK(std::count(before_timer.begin(), before_timer.end(), "> RDMA_READ_REQUEST 100 512B ack") ==
        2);
  CHECK(t.client.poll().empty());
  REQUIRE(t.run_to_end().size() == 3);
  CHECK(t.client.poll().at(0).status == CompletionStatus::kSuccess);
}

TEST_CASE("11: an ACK beyond a pending READ does not complete it") {
  TwoHcas t;
  number(t.server_memory);
  t.lose = losing({"< RDMA_READ_RESPONSE_ONLY 100 8B"});
  REQUIRE(t.post(SendOpcode::kRdmaRead, 8) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, kSignaled, 4096) == PostError::kNone);
  CHECK(t.run() == Transcript{"> RDMA_READ_REQUEST 100 8B ack", "> RDMA_WRITE_ONLY 101 8B ack",
                              "< RDMA_READ_RESPONSE_ONLY 100 8B lost", "< ACK 101",
                              "> RDMA_READ_REQUEST 100 8B ack", "> RDMA_WRITE_ONLY 101 8B ack",
                              "< RDMA_READ_RESPONSE_ONLY 100 8B", "< ACK 101"});
  const auto done = t.client.poll();
  REQUIRE(done.size() == 2);
  CHECK(done[0].opcode == CompletionOpcode::kRdmaRead);
}

TEST_CASE("12: a NAK in the middle of READ responses ends the operation") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaRead, 2000) == PostError::kNone);
  t.server.room = 0;
  t.step();
  t.server.room = 2;
  t.step();  // two responses, then the region goes
  REQUIRE(t.server.hca.deregister_region(t.server_key).ok());
  t.server.room = 100;
  CHECK(t.run() == Transcript{"< NAK(2) 102"});
  const auto done = t.client.poll();
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == CompletionStatus::kRemoteAccessError);
  CHECK(t.client.qp->state() == QpState::kError);
  CHECK(t.server.qp->state() == QpState::kError);
}

TEST_CASE("13: a fence waits for READs and ATOMICs, not for WRITEs") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, kFence) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, kFence) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaRead, 8, kFence) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, kSignaled | kFence) == PostError::kNone);
  CHECK(t.run() == Transcript{"> RDMA_WRITE_ONLY 100 8B", "> RDMA_WRITE_ONLY 101 8B",
                              "> RDMA_READ_REQUEST 102 8B ack", "> RDMA_WRITE_ONLY 103 8B ack",
                              "< RDMA_READ_RESPONSE_ONLY 102 8B", "< ACK 103",
                              "> RDMA_WRITE_ONLY 104 8B ack", "< ACK 104"});
}

TEST_CASE(
    "14: on the way to ERROR the failed WR completes once and the rest are flushed in order") {
  TwoHcas t({.retry_count = 0});
  t.lose = [](const Frame&) { return true; };
  REQUIRE(t.post_receive(8, 500) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, 0) == PostError::kNone);  // fails, though unsignalled
  REQUIRE(t.post(SendOpcode::kRdmaRead, 8, 0) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kSend, 5000) == PostError::kNone);
  REQUIRE(t.client.qp->post_recv({.wr_id = 900, .sges = {}}) == PostError::kNone);
  t.run_to_end();
  REQUIRE(t.post(SendOpcode::kSend, 8, 0) == PostError::kNone);  // accepted, and flushed
  const auto done = t.client.poll();
  REQUIRE(done.size() == 5);
  CHECK(done[0].status == CompletionStatus::kRetryExceededError);
  CHECK(done[0].wr_id == 1);
  const uint64_t order[] = {2, 3, 900, 4};
  for (size_t i = 1; i < 5; ++i) {
    CHECK(done[i].status == CompletionStatus::kWrFlushError);
    CHECK(done[i].wr_id == order[i - 1]);
  }
  CHECK(t.run_to_end().empty());
  CHECK(t.client.poll().empty());
}

TEST_CASE("14: acknowledged unsignalled work is not flushed") {
  TwoHcas t({.retry_count = 0});
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, 0) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  t.run();
  QpAttributes attributes;
  attributes.state = QpState::kError;
  REQUIRE(t.client.hca.modify_qp(*t.client.qp, attributes, kQpState, t.now).ok());
  const auto done = t.client.poll();
  REQUIRE(done.size() == 1);
  CHECK(done[0].wr_id == 2);
}

TEST_CASE("15: a WQE is a snapshot of list and inline data") {
  TwoHcas t;
  number(t.client_memory);
  Sge pieces[] = {TwoHcas::sge(t.client_memory, t.client_key, 0, 32)};
  SendRequest request = plain(t, SendOpcode::kRdmaWrite, pieces);
  REQUIRE(t.client.qp->post_send(request) == PostError::kNone);
  pieces[0] = {};
  std::vector<std::byte> data(48, std::byte{9});
  Sge piece{reinterpret_cast<uint64_t>(data.data()), 48, {}};  // inline data needs no key
  request.sges = {&piece, 1};
  request.flags = kSignaled | kInline;
  request.remote_address += 100;
  REQUIRE(t.post(request) == PostError::kNone);
  std::fill(data.begin(), data.end(), std::byte{0});
  t.run();
  CHECK(t.client.poll().size() == 2);
  CHECK(std::memcmp(t.client_memory.data(), t.server_memory.data(), 32) == 0);
  CHECK(t.server_memory[100] == std::byte{9});
  CHECK(t.server_memory[147] == std::byte{9});
  CHECK(t.server_memory[148] == std::byte{0});
}

TEST_CASE("solicited marks the last packet of what completes a receive, never a plain WRITE") {
  TwoHcas t;
  const auto solicited = [&t](SendOpcode opcode) {
    t.post(opcode, 300, kSignaled | kSolicited);
    t.transmit();
    std::vector<bool> marks;
    while (!t.link.empty()) marks.push_back(t.take().view().bth.solicited);
    return marks;
  };
  CHECK(solicited(SendOpcode::kSend) == std::vector{false, true});
  CHECK(solicited(SendOpcode::kRdmaWriteWithImm) == std::vector{false, true});
  CHECK(solicited(SendOpcode::kRdmaWrite) == std::vector{false, false});
}
