// Completions and events as an application sees them.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/unit/provider/session.hpp"

namespace uroce::provider {
namespace {

bool readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

// A queue pair with a posted receive: moving it to ERROR puts a completion into `cq`.
Owned<ibv_qp> loaded_qp(const Session& session, ibv_cq* cq) {
  auto qp = session.make_qp(cq);
  REQUIRE(to_init(qp.get()) == 0);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad = nullptr;
  REQUIRE(ibv_post_recv(qp.get(), &receive, &bad) == 0);
  return qp;
}

ibv_cq* next_event(ibv_comp_channel* channel) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (!readable(channel->fd) || ibv_get_cq_event(channel, &cq, &context) != 0) return nullptr;
  return cq;
}

struct ConnectedPair {
  explicit ConnectedPair(const Session& session)
      : cq(session.make_cq(64)), a(session.make_qp(cq.get())), b(session.make_qp(cq.get())) {
    connect(a.get(), b.get());
    connect(b.get(), a.get());
  }
  Owned<ibv_cq> cq;
  Owned<ibv_qp> a, b;
};

TEST_CASE("a message between two queue pairs of one process arrives and completes on both sides") {
  const Session session;
  const ConnectedPair pair(session);
  std::vector<std::byte> memory(128);
  const auto mr = session.register_all(memory, IBV_ACCESS_LOCAL_WRITE);
  memory[3] = std::byte{7};
  ibv_sge from{reinterpret_cast<uint64_t>(memory.data()), 64, mr->lkey};
  ibv_sge to{from.addr + 64, 64, mr->lkey};
  ibv_recv_wr receive{};
  receive.wr_id = 1;
  receive.sg_list = &to;
  receive.num_sge = 1;
  ibv_recv_wr* bad_receive = nullptr;
  REQUIRE(ibv_post_recv(pair.b.get(), &receive, &bad_receive) == 0);
  ibv_send_wr send{};
  send.wr_id = 2;
  send.sg_list = &from;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND_WITH_IMM;
  send.imm_data = 0x12345678;
  ibv_send_wr* bad_send = nullptr;
  REQUIRE(ibv_post_send(pair.a.get(), &send, &bad_send) == 0);

  const auto done = poll_for(pair.cq.get(), 2);
  REQUIRE(done.size() == 2);
  const auto& received = done[0].wr_id == 1 ? done[0] : done[1];
  const auto& sent = done[0].wr_id == 1 ? done[1] : done[0];
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.opcode == IBV_WC_RECV);
  CHECK(received.byte_len == 64);
  CHECK(received.imm_data == 0x12345678);
  CHECK(received.wc_flags == IBV_WC_WITH_IMM);
  CHECK(received.qp_num == pair.b->qp_num);
  CHECK(sent.status == IBV_WC_SUCCESS);
  CHECK(sent.opcode == IBV_WC_SEND);
  CHECK(sent.qp_num == pair.a->qp_num);
  CHECK(memory[64 + 3] == std::byte{7});
}

TEST_CASE("an armed queue fires once, an unarmed one never") {
  const Session session;
  const auto channel = session.make_channel();
  const auto cq = session.make_cq(8, channel.get());
  auto first = loaded_qp(session, cq.get()), second = loaded_qp(session, cq.get()),
       third = loaded_qp(session, cq.get());
  REQUIRE(to_error(first.get()) == 0);
  CHECK(!readable(channel->fd));
  CHECK(poll_for(cq.get(), 1).size() == 1);
  REQUIRE(ibv_req_notify_cq(cq.get(), 0) == 0);
  CHECK(!readable(channel->fd));
  REQUIRE(to_error(second.get()) == 0);
  REQUIRE(to_error(third.get()) == 0);
  CHECK(next_event(channel.get()) == cq.get());
  CHECK(next_event(channel.get()) == nullptr);
  ibv_ack_cq_events(cq.get(), 1);
}

TEST_CASE("a thousand armed queues on one channel all fire") {
  constexpr size_t kCount = 1000;
  const Session session;
  const auto channel = session.make_channel();
  std::vector<Owned<ibv_cq>> cqs;
  std::vector<Owned<ibv_qp>> qps;
  for (size_t i = 0; i < kCount; ++i) {
    cqs.push_back(session.make_cq(1, channel.get()));
    qps.push_back(loaded_qp(session, cqs.back().get()));
    REQUIRE(ibv_req_notify_cq(cqs.back().get(), 0) == 0);
  }
  for (const auto& qp : qps) REQUIRE(to_error(qp.get()) == 0);
  for (size_t i = 0; i < kCount; ++i) {
    ibv_cq* const cq = next_event(channel.get());
    REQUIRE(cq == cqs[i].get());
    ibv_ack_cq_events(cq, 1);
  }
  CHECK(next_event(channel.get()) == nullptr);
  qps.clear();
}

TEST_CASE("a queue's unread events go with it") {
  const Session session;
  const auto channel = session.make_channel();
  auto gone = session.make_cq(8, channel.get());
  const auto stays = session.make_cq(8, channel.get());
  auto gone_qp = loaded_qp(session, gone.get()), stays_qp = loaded_qp(session, stays.get());
  for (ibv_cq* cq : {gone.get(), stays.get()}) REQUIRE(ibv_req_notify_cq(cq, 0) == 0);
  for (ibv_qp* qp : {gone_qp.get(), stays_qp.get()}) REQUIRE(to_error(qp) == 0);
  gone_qp.reset();
  gone.reset();  // waits for nothing: the event was not read
  CHECK(next_event(channel.get()) == stays.get());
  ibv_ack_cq_events(stays.get(), 1);
  CHECK(next_event(channel.get()) == nullptr);
}

TEST_CASE("destruction waits until a read event is acknowledged") {
  const Session session;
  const auto channel = session.make_channel();
  auto cq = session.make_cq(8, channel.get());
  auto qp = loaded_qp(session, cq.get());
  REQUIRE(ibv_req_notify_cq(cq.get(), 0) == 0);
  REQUIRE(to_error(qp.get()) == 0);
  REQUIRE(next_event(channel.get()) == cq.get());
  qp.reset();
  std::atomic<bool> acknowledged{false};
  ibv_cq* const held = cq.get();
  std::thread late([&] {
    usleep(50'000);
    acknowledged = true;
    ibv_ack_cq_events(held, 1);
  });
  CHECK(ibv_destroy_cq(cq.release()) == 0);
  CHECK(acknowledged);
  late.join();
}

TEST_CASE("a channel in use stays") {
  const Session session;
  const auto channel = session.make_channel();
  const auto cq = session.make_cq(8, channel.get());
  CHECK(destroy_comp_channel(channel.get()) == EBUSY);
}

TEST_CASE("a thread that sleeps on the channel is woken by a completion") {
  const Session session;
  const auto channel = session.make_channel();
  const auto cq = session.make_cq(8, channel.get());
  const auto qp = loaded_qp(session, cq.get());
  REQUIRE(ibv_req_notify_cq(cq.get(), 0) == 0);
  std::thread waker([&] {
    usleep(20'000);
    to_error(qp.get());
  });
  ibv_cq* got = nullptr;
  void* context = nullptr;
  CHECK(ibv_get_cq_event(channel.get(), &got, &context) == 0);
  CHECK(got == cq.get());
  ibv_ack_cq_events(cq.get(), 1);
  waker.join();
}

TEST_CASE("an access error raises an asynchronous event at the responder") {
  const Session session;
  ConnectedPair pair(session);
  REQUIRE(fcntl(session.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
  std::vector<std::byte> memory(64);
  const auto mr = session.register_all(memory, IBV_ACCESS_LOCAL_WRITE);
  ibv_sge from{reinterpret_cast<uint64_t>(memory.data()), 64, mr->lkey};
  ibv_send_wr write{};
  write.sg_list = &from;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma.remote_addr = from.addr;
  write.wr.rdma.rkey = mr->rkey;  // without REMOTE_WRITE
  ibv_send_wr* bad = nullptr;
  REQUIRE(ibv_post_send(pair.a.get(), &write, &bad) == 0);
  const auto done = poll_for(pair.cq.get(), 1);
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == IBV_WC_REM_ACCESS_ERR);
  ibv_async_event event{};
  REQUIRE(ibv_get_async_event(session.context.get(), &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(event.element.qp == pair.b.get());
  ibv_ack_async_event(&event);
}

// Queue pairs whose completions were one more than `cq` holds.
std::vector<Owned<ibv_qp>> overflow(const Session& session, ibv_cq* cq) {
  std::vector<Owned<ibv_qp>> qps;
  for (int i = 0; i < cq->cqe + 1; ++i) qps.push_back(loaded_qp(session, cq));
  for (const auto& qp : qps) REQUIRE(to_error(qp.get()) == 0);
  return qps;
}

TEST_CASE("an overflown queue raises an asynchronous event") {
  const Session session;
  const auto cq = session.make_cq(1);
  const auto qps = overflow(session, cq.get());
  ibv_async_event event{};
  REQUIRE(readable(session.context->async_fd));
  REQUIRE(ibv_get_async_event(session.context.get(), &event) == 0);
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == cq.get());
  ibv_ack_async_event(&event);
}

TEST_CASE("an object's unread asynchronous events go with it") {
  const Session session;
  auto cq = session.make_cq(1);
  auto qps = overflow(session, cq.get());
  REQUIRE(readable(session.context->async_fd));
  qps.clear();
  cq.reset();
  CHECK(!readable(session.context->async_fd));
}

TEST_CASE("an extended queue reads one completion at a time") {
  const Session session;
  ibv_cq_init_attr_ex asked{};
  asked.cqe = 8;
  asked.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* const extended = ibv_create_cq_ex(session.context.get(), &asked);
  REQUIRE(extended != nullptr);
  const Owned<ibv_cq> cq(ibv_cq_ex_to_cq(extended));
  ibv_poll_cq_attr none{};
  CHECK(ibv_start_poll(extended, &none) == ENOENT);
  const auto first = loaded_qp(session, cq.get()), second = loaded_qp(session, cq.get());
  REQUIRE(to_error(first.get()) == 0);
  REQUIRE(to_error(second.get()) == 0);
  REQUIRE(ibv_start_poll(extended, &none) == 0);
  CHECK(extended->status == IBV_WC_WR_FLUSH_ERR);
  CHECK(ibv_wc_read_qp_num(extended) == first->qp_num);
  REQUIRE(ibv_next_poll(extended) == 0);
  CHECK(ibv_wc_read_qp_num(extended) == second->qp_num);
  CHECK(ibv_next_poll(extended) == ENOENT);
  ibv_end_poll(extended);
}

TEST_CASE("extended queues with what we do not have are not supported") {
  const Session session;
  const auto refused = [&](auto change) {
    ibv_cq_init_attr_ex asked{};
    asked.cqe = 8;
    change(asked);
    return ibv_create_cq_ex(session.context.get(), &asked) == nullptr ? errno : 0;
  };
  CHECK(refused([](auto& asked) { asked.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP; }) ==
        EOPNOTSUPP);
  CHECK(refused([](auto& asked) {
          asked.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
          asked.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        }) == EOPNOTSUPP);
  CHECK(refused([](auto& asked) { asked.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD; }) == EOPNOTSUPP);
  CHECK(refused([](auto& asked) { asked.cqe = 0; }) == EINVAL);
}

}  // namespace
}  // namespace uroce::provider
