// Which packets leave when: windows, probes, parts of READs, turns, SQD.
#include <cstring>

#include "tests/catch.hpp"
#include "tests/unit/transport/two_hcas.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

TEST_CASE("an unsignalled tail costs no ACK, and is probed when nothing follows") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, 0) == PostError::kNone);
  CHECK(t.run() == Transcript{"> RDMA_WRITE_ONLY 100 8B"});
  CHECK(t.run_to_end() == Transcript{"> RDMA_WRITE_ONLY 100 8B ack", "< ACK 100"});
  CHECK(t.client.hca.counters().local_ack_timeout_err == 0);
}

TEST_CASE("a lost unsignalled tail is found by the probe") {
  TwoHcas t;
  t.lose = losing({"> RDMA_WRITE_ONLY 100 8B"});
  number(t.client_memory);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, 0) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, 0, 64) == PostError::kNone);
  t.run_to_end();
  CHECK(std::memcmp(t.client_memory.data(), t.server_memory.data(), 8) == 0);
  CHECK(std::memcmp(t.client_memory.data(), t.server_memory.data() + 64, 8) == 0);
}

TEST_CASE("a probe of memory that was taken back is left out") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, 0) == PostError::kNone);
  t.run();
  REQUIRE(t.client.hca.deregister_region(t.client_key).ok());
  CHECK(t.run_to_end().empty());
  CHECK(t.client.qp->state() == QpState::kRts);
}

TEST_CASE("max_rd_atomic bounds READs and ATOMICs in flight") {
  TwoHcas t({.max_rd_atomic = 2});
  for (int i = 0; i < 4; ++i) REQUIRE(t.post(SendOpcode::kRdmaRead, 8) == PostError::kNone);
  CHECK(t.step() == Transcript{"> RDMA_READ_REQUEST 100 8B ack", "> RDMA_READ_REQUEST 101 8B ack"});
  t.run();
  CHECK(t.client.poll().size() == 4);
}

TEST_CASE("a READ larger than the window is asked for in parts") {
  TwoHcas t;
  number(t.server_memory);
  REQUIRE(t.post(SendOpcode::kRdmaRead, 500 * 256 + 3) == PostError::kNone);
  CHECK(t.step() == Transcript{"> RDMA_READ_REQUEST 100 65536B ack"});
  t.run();
  CHECK(t.client.poll().at(0).byte_length == 500 * 256 + 3);
  CHECK(t.client.hca.counters().tx_retransmitted_packets == 0);
  CHECK(std::memcmp(t.client_memory.data(), t.server_memory.data(), 500 * 256 + 3) == 0);
}

TEST_CASE("the window bounds packets in flight, shrinks at a loss and asks when it fills") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 1u << 20) == PostError::kNone);
  size_t sent = 0;
  for (int i = 0; i < 100; ++i) sent += t.client.hca.poll_transmit(t.client, 64, t.now);
  CHECK(sent == 256);
  CHECK(t.link.back().view().bth.ack_request);
  t.link.clear();  // all lost
  t.advance_by(5'000'000);
  sent = 0;
  for (int i = 0; i < 100; ++i) sent += t.client.hca.poll_transmit(t.client, 64, t.now);
  CHECK(sent == 128);
  t.run_to_end();
  CHECK(t.client.poll().at(0).status == CompletionStatus::kSuccess);
}

TEST_CASE("a sink that refuses parks the queue pair until the next poll") {
  TwoHcas t;
  t.client.room = 1;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 600) == PostError::kNone);
  CHECK(t.client.hca.poll_transmit(t.client, 64, t.now) == 1);
  CHECK(t.client.hca.transmit_parked());
  CHECK_FALSE(t.client.hca.transmit_pending());
  t.client.room = 100;
  CHECK(t.client.hca.poll_transmit(t.client, 64, t.now) == 2);
  CHECK_FALSE(t.client.hca.transmit_parked());
}

TEST_CASE("many queue pairs share a burst") {
  TwoHcas t;
  const auto [other, far] = t.connect({});
  const Sge piece = TwoHcas::sge(t.client_memory, t.client_key, 0, 256 * 40);
  SendRequest request = plain(t, SendOpcode::kRdmaWrite, {&piece, 1});
  REQUIRE(t.post(request) == PostError::kNone);
  REQUIRE(other->post_send(request) == PostError::kNone);
  t.client.hca.activate(*other, t.now);
  CHECK(t.client.hca.poll_transmit(t.client, 32, t.now) == 32);
  size_t first = 0;
  for (const Frame& frame : t.link) {
    first += frame.view().bth.destination_qpn == t.server.qp->qpn() ? 1 : 0;
  }
  CHECK(first == 16);
}

TEST_CASE("SQD finishes what was started, holds the rest and reports that it is drained") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 600) == PostError::kNone);
  t.client.hca.poll_transmit(t.client, 1, t.now);
  QpAttributes attributes;
  attributes.state = QpState::kSqd;
  attributes.sqd_async_notify = true;
  REQUIRE(
      t.client.hca.modify_qp(*t.client.qp, attributes, kQpState | kQpEnSqdAsyncNotify, t.now).ok());
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  CHECK(t.client.events.empty());
  CHECK(t.run().size() == 4);
  REQUIRE(t.client.events.size() == 1);
  CHECK(t.client.events[0].type == AsyncEventType::kSqDrained);
  CHECK(t.client.events[0].subject == &t.client);
  CHECK(t.client.poll().size() == 1);
  attributes.state = QpState::kRts;
  REQUIRE(t.client.hca.modify_qp(*t.client.qp, attributes, kQpState, t.now).ok());
  CHECK(t.run().size() == 2);
  CHECK(t.client.poll().size() == 1);
}
