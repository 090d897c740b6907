// Creation, limits, errors of the consumer's own making, overflow, destruction.
#include <algorithm>
#include <set>

#include "tests/catch.hpp"
#include "tests/unit/transport/two_hcas.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

namespace {

QpInitAttributes init_of(const Side& side, QpCapabilities capabilities = {16, 16, 1, 1, 0}) {
  return {.type = QpType::kRc,
          .pd = side.pd,
          .send_cq = side.cq,
          .recv_cq = side.cq,
          .capabilities = capabilities};
}

}  // namespace

TEST_CASE("QPNs cycle: none is reused within two seconds, and 0 and 1 never appear") {
  TwoHcas t;
  std::set<uint32_t> seen;
  for (int i = 0; i < 500; ++i) {
    QueuePair* qp = *t.client.hca.create_qp(init_of(t.client), t.now);
    CHECK(qp->qpn().slot() == 1);
    CHECK(qp->qpn().index() > 1);
    CHECK(seen.insert(qp->qpn().value).second);
    REQUIRE(t.client.hca.destroy_qp(*qp, t.now).ok());
    t.now = t.now + 1'000'000;
  }
}

TEST_CASE("a QPN may come again when all others have been used and it has rested") {
  HcaConfig config{.slot = 3, .seed = 5, .limits = {}, .active_mtu = Mtu::k4096};
  std::deque<Frame> link;
  Side side(true, link, config);
  std::set<uint16_t> seen;
  Instant now;
  for (uint32_t i = 0; i < 65'533 + 10; ++i) {
    QueuePair* qp = *side.hca.create_qp(init_of(side, {0, 0, 0, 0, 0}), now);
    seen.insert(qp->qpn().index());
    REQUIRE(side.hca.destroy_qp(*qp, now).ok());
    now = now + 100'000;
  }
  CHECK(seen.size() == 65'533);
}

TEST_CASE("limits are enforced, and rounded-up capabilities are reported") {
  TwoHcas t;
  const auto error_of = [&t](QpCapabilities capabilities) {
    const auto qp = t.client.hca.create_qp(init_of(t.client, capabilities), t.now);
    return qp.ok() ? 0 : qp.refusal().error;
  };
  CHECK(error_of({16385, 1, 1, 1, 0}) == EINVAL);
  CHECK(error_of({1, 16385, 1, 1, 0}) == EINVAL);
  CHECK(error_of({1, 1, 33, 1, 0}) == EINVAL);
  CHECK(error_of({1, 1, 1, 33, 0}) == EINVAL);
  CHECK(error_of({1, 1, 1, 1, 513}) == EINVAL);
  CHECK(error_of({16384, 16384, 32, 32, 512}) == 0);
  QueuePair* qp = *t.client.hca.create_qp(init_of(t.client, {100, 3, 1, 1, 0}), t.now);
  CHECK(qp->init_attributes().capabilities.max_send_wr == 128);
  CHECK(t.client.hca.query_qp(*qp).capabilities.max_recv_wr == 4);
  QpInitAttributes ud = init_of(t.client);
  ud.type = QpType::kUd;
  CHECK(t.client.hca.create_qp(ud, t.now).refusal().error == EOPNOTSUPP);
}

TEST_CASE("posting is refused for what cannot be") {
  TwoHcas t({.capabilities = {4, 2, 2, 1, 16}});
  const Sge piece = TwoHcas::sge(t.client_memory, t.client_key, 0, 8);
  const std::vector<Sge> three(3, piece);
  SendRequest request;
  request.sges = three;
  CHECK(t.post(request) == PostError::kTooManySges);
  CHECK(t.server.qp->post_recv({.wr_id = 1, .sges = three}) == PostError::kTooManySges);
  request.sges = {&piece, 1};
  request.opcode = static_cast<SendOpcode>(9);
  CHECK(t.post(request) == PostError::kBadOpcode);
  request.opcode = SendOpcode::kRdmaRead;
  request.flags = kInline;
  CHECK(t.post(request) == PostError::kBadOpcode);
  request.opcode = SendOpcode::kSend;
  Sge longer = piece;
  longer.length = 17;
  request.sges = {&longer, 1};
  CHECK(t.post(request) == PostError::kInlineTooLong);
  request.flags = 0;
  longer.length = 0x80000001;
  CHECK(t.post(request) == PostError::kMessageTooLong);
  QueuePair* reset = *t.client.hca.create_qp(init_of(t.client), t.now);
  request.sges = {&piece, 1};
  CHECK(reset->post_send(request) == PostError::kWrongState);
  CHECK(reset->post_recv({.wr_id = 1, .sges = {&piece, 1}}) == PostError::kWrongState);
}

TEST_CASE("a slot is free again only when its completion was polled") {
  TwoHcas t({.capabilities = {4, 2, 1, 1, 0}});
  for (int i = 0; i < 3; ++i) REQUIRE(t.post(SendOpcode::kRdmaWrite, 8, 0) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  CHECK(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kQueueFull);
  t.run();
  CHECK(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kQueueFull);
  CHECK(t.client.poll().size() == 1);
  for (int i = 0; i < 4; ++i) REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  CHECK(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kQueueFull);
}

TEST_CASE("the sender's own bad SGEs complete with LOC_PROT_ERR after what came before") {
  struct Case {
    std::string_view what;
    SendOpcode opcode;
    AccessFlags access;
    bool other_pd;
    uint32_t length;
  };
  const Case cases[] = {{"bounds", SendOpcode::kRdmaWrite, kLocalWrite, false, 65},
                        {"domain", SendOpcode::kSend, kLocalWrite, true, 8},
                        {"READ into read-only memory", SendOpcode::kRdmaRead, 0, false, 8},
                        {"ATOMIC into it", SendOpcode::kAtomicFetchAndAdd, 0, false, 8}};
  for (const Case& each : cases) {
    CAPTURE(each.what);
    TwoHcas t;
    std::vector<std::byte> memory(64);
    const PdId pd = each.other_pd ? *t.client.hca.create_pd() : t.client.pd;
    const Lkey key{*t.client.hca.register_region({.pd = pd,
                                                  .address = memory.data(),
                                                  .length = memory.size(),
                                                  .iova = reinterpret_cast<uint64_t>(memory.data()),
                                                  .access = each.access})};
    REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
    const Sge piece = TwoHcas::sge(memory, key, 0, each.length);
    SendRequest request;
    request.wr_id = 7;
    request.sges = {&piece, 1};
    request.opcode = each.opcode;
    request.remote_address = reinterpret_cast<uint64_t>(t.server_memory.data());
    request.rkey = {t.server_key.value};
    REQUIRE(t.post(request) == PostError::kNone);
    REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
    CHECK(t.run().size() == 2);
    const auto done = t.client.poll();
    REQUIRE(done.size() == 3);
    CHECK(done[0].status == CompletionStatus::kSuccess);
    CHECK(done[1].status == CompletionStatus::kLocalProtectionError);
    CHECK(done[1].wr_id == 7);
    CHECK(done[2].status == CompletionStatus::kWrFlushError);
    CHECK(t.server.qp->state() == QpState::kRts);
  }
}

TEST_CASE("a READ with an initiator depth of 0 and an ATOMIC of other than 8 bytes fail at once") {
  TwoHcas depth({.max_rd_atomic = 0});
  REQUIRE(depth.post(SendOpcode::kRdmaRead, 8) == PostError::kNone);
  CHECK(depth.run().empty());
  CHECK(depth.client.poll().at(0).status == CompletionStatus::kLocalQpOperationError);
  TwoHcas length;
  REQUIRE(length.post(SendOpcode::kAtomicFetchAndAdd, 4) == PostError::kNone);
  CHECK(length.run().empty());
  CHECK(length.client.poll().at(0).status == CompletionStatus::kLocalLengthError);
}

TEST_CASE("a region that goes while its WRITE is in flight fails the WRITE") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 600) == PostError::kNone);
  t.client.hca.poll_transmit(t.client, 1, t.now);
  REQUIRE(t.client.hca.deregister_region(t.client_key).ok());
  t.run();
  CHECK(t.client.poll().at(0).status == CompletionStatus::kLocalProtectionError);
}

TEST_CASE("remote refusals reach the requester as their statuses") {
  TwoHcas access;
  REQUIRE(access.post(SendOpcode::kRdmaWrite, 8, kSignaled, 1u << 20) == PostError::kNone);
  access.run();
  CHECK(access.client.poll().at(0).status == CompletionStatus::kRemoteAccessError);
  CHECK(access.client.hca.counters().req_remote_access_errors == 1);
  TwoHcas invalid({.access = kLocalWrite});
  REQUIRE(invalid.post(SendOpcode::kRdmaRead, 8) == PostError::kNone);
  invalid.run();
  CHECK(invalid.client.poll().at(0).status == CompletionStatus::kRemoteInvalidRequestError);
  CHECK(invalid.client.hca.counters().req_remote_invalid_request == 1);
}

TEST_CASE("an overflowing completion queue turns its queue pairs to ERROR, with events") {
  TwoHcas t;
  CompletionQueue* small = *t.client.hca.create_cq(2, &t);
  QpInitAttributes init = init_of(t.client);
  init.send_cq = small;
  QueuePair* qp = *t.client.hca.create_qp(init, t.now);
  QueuePair* peer = TwoHcas::create(t.server, {});
  TwoHcas::bring_up(t.client, *qp, t.server, *peer, {});
  TwoHcas::bring_up(t.server, *peer, t.client, *qp, {.client_psn = 200, .server_psn = 100});
  SendRequest request;
  request.flags = kSignaled;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(peer->post_recv({}) == PostError::kNone);
    REQUIRE(qp->post_send(request) == PostError::kNone);
  }
  t.client.hca.activate(*qp, t.now);
  t.run();
  CHECK(qp->state() == QpState::kError);
  const auto raised = [&t](AsyncEventType type) {
    return std::count_if(t.client.events.begin(), t.client.events.end(),
                         [type](const RaisedEvent& event) { return event.type == type; });
  };
  CHECK(raised(AsyncEventType::kCqError) == 1);
  CHECK(raised(AsyncEventType::kQpFatal) == 1);
}

TEST_CASE("what is in use cannot be destroyed, and goes afterwards") {
  TwoHcas t;
  CHECK(t.client.hca.destroy_pd(t.client.pd).refusal().error == EBUSY);
  CHECK(t.client.hca.destroy_cq(*t.client.cq).refusal().error == EBUSY);
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  t.run();
  REQUIRE(t.client.hca.destroy_qp(*t.client.qp, t.now).ok());
  CHECK(t.client.poll().empty());  // its completions went with it
  CHECK(t.client.hca.destroy_pd(t.client.pd).refusal().error == EBUSY);
  REQUIRE(t.client.hca.deregister_region(t.client_key).ok());
  CHECK(t.client.hca.destroy_pd(t.client.pd).ok());
  CHECK(t.client.hca.destroy_cq(*t.client.cq).ok());
  CHECK_FALSE(t.client.hca.destroy_pd(t.client.pd).ok());
}

TEST_CASE("RESET forgets everything, and the queue pair can be used again") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  t.run();
  REQUIRE(t.post(SendOpcode::kSend, 8) == PostError::kNone);
  t.run();
  QpAttributes attributes;
  attributes.state = QpState::kReset;
  for (Side* side : {&t.client, &t.server}) {
    REQUIRE(side->hca.modify_qp(*side->qp, attributes, kQpState, t.now).ok());
    CHECK(side->poll().empty());
  }
  const ConnectOptions again{.client_psn = 5, .server_psn = 6};
  TwoHcas::bring_up(t.client, *t.client.qp, t.server, *t.server.qp, again);
  TwoHcas::bring_up(t.server, *t.server.qp, t.client, *t.client.qp,
                    {.client_psn = 6, .server_psn = 5});
  REQUIRE(t.post_receive(8) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kSend, 8) == PostError::kNone);
  CHECK(t.run() == Transcript{"> SEND_ONLY 5 8B ack", "< ACK 5"});
  CHECK(t.client.poll().size() == 1);
}

TEST_CASE("a refused modify changes nothing and names what is missing") {
  TwoHcas t;
  QueuePair* qp = TwoHcas::create(t.client, {});
  QpAttributes attributes;
  attributes.state = QpState::kInit;
  REQUIRE(t.client.hca.modify_qp(*qp, attributes, TwoHcas::kToInit, t.now).ok());
  attributes.state = QpState::kRtr;
  const Status status = t.client.hca.modify_qp(
      *qp, attributes, TwoHcas::kToRtr & ~static_cast<QpAttributeMask>(kQpDestQpn), t.now);
  REQUIRE_FALSE(status.ok());
  CHECK(status.refusal().error == EINVAL);
  CHECK(status.refusal().why.find("IBV_QP_DEST_QPN") != std::string::npos);
  CHECK(qp->state() == QpState::kInit);
}

TEST_CASE("query tells every attribute that was set") {
  TwoHcas t;
  const QpAttributes attributes = t.client.hca.query_qp(*t.client.qp);
  CHECK(attributes.state == QpState::kRts);
  CHECK(attributes.path_mtu == Mtu::k256);
  CHECK(attributes.sq_psn.value() == 100);
  CHECK(attributes.rq_psn.value() == 200);
  CHECK(attributes.destination_qpn == t.server.qp->qpn());
  CHECK(attributes.address.destination_gid == t.server.gid);
  CHECK(attributes.retry_count == 7);
  CHECK(attributes.ack_timeout == 10);
  CHECK(attributes.max_rd_atomic == 4);
}

TEST_CASE("a solicited SEND fires a queue that is armed for solicited completions only") {
  TwoHcas t;
  REQUIRE(t.post_receive(8) == PostError::kNone);
  REQUIRE(t.post_receive(8) == PostError::kNone);
  t.server.cq->arm(true);
  REQUIRE(t.post(SendOpcode::kSend, 8) == PostError::kNone);
  t.run();
  CHECK(t.server.completion_events == 0);
  REQUIRE(t.post(SendOpcode::kSend, 8, kSignaled | kSolicited) == PostError::kNone);
  t.run();
  CHECK(t.server.completion_events == 1);
}
