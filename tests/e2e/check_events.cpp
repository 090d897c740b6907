// Completion channels and asynchronous events: none lost, none invented.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include <array>
#include <set>

#include "tests/e2e/verbs_kit.hpp"

namespace uroce::e2e {
namespace {

Channel make_channel(const Context& context) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(context.get());
  require(channel != nullptr, "create_comp_channel: {}", strerror(errno));
  return Channel(channel);
}

bool readable(int fd, int timeout_ms) {
  pollfd entry = {fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

void arm(ibv_cq* cq, bool solicited_only = false) {
  require(ibv_req_notify_cq(cq, solicited_only ? 1 : 0) == 0, "req_notify_cq");
}

// The next event within five seconds, acknowledged.
ibv_cq* take_event(const Channel& channel, std::string_view what) {
  require(readable(channel->fd, 5000), "{}: no event within five seconds", what);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  require(ibv_get_cq_event(channel.get(), &cq, &cq_context) == 0, "get_cq_event");
  require(cq_context == cq->cq_context, "{}: wrong cq_context", what);
  ibv_ack_cq_events(cq, 1);
  return cq;
}

// A side whose receive CQ reports to `events`.
std::unique_ptr<Side> side_with_events(const Options& options, SideChannel& channel,
                                       const Context& context, const Pd& pd, const Channel& events,
                                       Cq& extra) {
  extra = make_cq(context, 256, events.get(), &extra);
  auto side = connect_side(options, channel, context, pd, 4096, {});
  ibv_qp_init_attr init{};
  init.send_cq = side->send_cq.get();
  init.recv_cq = extra.get();
  init.cap = {64, 64, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  side->qp.reset(ibv_create_qp(pd.get(), &init));
  require(side->qp != nullptr, "create_qp: {}", strerror(errno));
  Peer self = side->peer;
  self.qpn = side->qp->qp_num;
  self.psn = 77;
  const Peer theirs = channel.exchange(self);
  side->peer.qpn = theirs.qpn;
  side->peer.psn = theirs.psn;
  to_init(side->qp.get(), kAllAccess);
  to_rtr_rts(side->qp.get(), options, side->peer, 77, side->options);
  channel.barrier();
  return side;
}

void send_one(Side& side, bool solicited) {
  Send send;
  fill_send(send, side, IBV_WR_SEND, 0, 8, 0);
  if (solicited) send.wr.send_flags |= IBV_SEND_SOLICITED;
  post(side, send.wr);
  wait_success(side.send_cq.get(), "SEND");
}

void solicited(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const Channel events = make_channel(context);
  Cq cq;
  const auto side = side_with_events(options, channel, context, pd, events, cq);
  if (!options.first) {
    for (int i = 0; i < 8; ++i) post_receive(*side, 0, 64);
    arm(cq.get(), true);
  }
  channel.barrier();
  if (options.first) send_one(*side, false);
  channel.barrier();
  if (!options.first) {
    require(!readable(events->fd, 50), "an unsolicited message woke a waiter for solicited ones");
    wait_success(cq.get(), "receive");
  }
  channel.barrier();
  if (options.first) send_one(*side, true);
  if (!options.first) {
    require(take_event(events, "solicited message") == cq.get(), "wrong CQ");
    wait_success(cq.get(), "receive");
  }
  channel.barrier();
  if (options.first) send_one(*side, true);
  channel.barrier();
  if (!options.first) {
    require(!readable(events->fd, 50), "a CQ that was not armed gave an event");
    arm(cq.get());
    require(!readable(events->fd, 50), "arming gave an event for an old completion");
  }
  channel.barrier();
  if (options.first) send_one(*side, false);
  if (!options.first) require(take_event(events, "any message") == cq.get(), "wrong CQ");
  channel.barrier();
}

// Sleep, be woken, answer: a lost event would hang here.
void ping_pong_by_events(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const Channel events = make_channel(context);
  Cq cq;
  const auto side = side_with_events(options, channel, context, pd, events, cq);
  for (int i = 0; i < 4; ++i) post_receive(*side, 0, 64);
  arm(cq.get());
  channel.barrier();
  for (int round = 0; round < 500; ++round) {
    if (options.first) send_one(*side, false);
    take_event(events, fmt::format("round {}", round));
    arm(cq.get());
    wait_success(cq.get(), "receive");
    post_receive(*side, 0, 64);
    if (!options.first) send_one(*side, false);
  }
  channel.barrier();
}

// A queue pair in ERROR completes whatever is posted to it: events without a peer.
struct Source {
  Cq cq;
  Qp qp;

  void complete_one() {
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    require(ibv_post_recv(qp.get(), &wr, &bad) == 0, "post_recv in ERROR");
  }
};

Source make_source(const Context& context, const Pd& pd, const Channel& events) {
  Source source;
  source.cq = make_cq(context, 4, events.get());
  ibv_qp_init_attr init{};
  init.send_cq = source.cq.get();
  init.recv_cq = source.cq.get();
  init.cap = {1, 2, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  source.qp.reset(ibv_create_qp(pd.get(), &init));
  require(source.qp != nullptr, "create_qp: {}", strerror(errno));
  to_init(source.qp.get(), kAllAccess);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  require(ibv_modify_qp(source.qp.get(), &attr, IBV_QP_STATE) == 0, "modify_qp to ERR");
  return source;
}

// 1,000 armed CQs on one channel; a third is destroyed with its event unread.
void many_armed_queues(const Options& options, SideChannel&) {
  if (!options.first) return;
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const Channel events = make_channel(context);
  fcntl(events->fd, F_SETFL, fcntl(events->fd, F_GETFL) | O_NONBLOCK);
  std::vector<Source> sources;
  for (int i = 0; i < 1000; ++i) {
    sources.push_back(make_source(context, pd, events));
    arm(sources.back().cq.get());
  }
  require(!readable(events->fd, 0), "an event without a completion");
  for (Source& source : sources) source.complete_one();
  std::set<ibv_cq*> expected;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (i % 3 == 0) {
      sources[i].qp.reset();
      sources[i].cq.reset();
    } else {
      expected.insert(sources[i].cq.get());
    }
  }
  while (!expected.empty()) {
    ibv_cq* const cq = take_event(events, fmt::format("{} CQs to go", expected.size()));
    require(expected.erase(cq) == 1, "an event for a CQ that is gone or had its event");
  }
  require(!readable(events->fd, 50), "an event too many");
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  errno = 0;
  require(ibv_get_cq_event(events.get(), &cq, &cq_context) == -1 && errno == EAGAIN,
          "an empty non-blocking channel gave errno {}", errno);
}

ibv_async_event take_async(const Context& context, std::string_view what) {
  require(readable(context->async_fd, 5000), "{}: no asynchronous event", what);
  ibv_async_event event{};
  require(ibv_get_async_event(context.get(), &event) == 0, "get_async_event");
  ibv_ack_async_event(&event);
  return event;
}

void access_error_event(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, 4096, {});
  if (options.first) {
    Send send;
    fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 8, 0);
    send.wr.wr.rdma.rkey ^= 0x5a00;
    post(*side, send.wr);
    const ibv_wc wc = wait_completion(side->send_cq.get());
    require(wc.status == IBV_WC_REM_ACCESS_ERR, "{}", ibv_wc_status_str(wc.status));
  } else {
    const ibv_async_event event = take_async(context, "remote access error");
    require(event.event_type == IBV_EVENT_QP_ACCESS_ERR, "event {}",
            ibv_event_type_str(event.event_type));
    require(event.element.qp == side->qp.get(), "the event names another QP");
  }
  channel.barrier();
}

void queue_overflow_event(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  PairOptions pair;
  pair.cq_entries = 1;  // the device may round up
  const auto side = connect_side(options, channel, context, pd, 4096, pair);
  if (options.first) {
    const int room = side->send_cq->cqe;
    require(room < 256, "a CQ of 1 entry has {}", room);
    for (int i = 0; i <= room; ++i) {
      Send send;
      fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 8, 0);
      post(*side, send.wr);
    }
    const ibv_async_event event = take_async(context, "CQ overflow");
    require(event.event_type == IBV_EVENT_CQ_ERR, "event {}", ibv_event_type_str(event.event_type));
    require(event.element.cq == side->send_cq.get(), "the event names another CQ");
  }
  channel.barrier();
}

// An unread event goes with its object.
void destroyed_with_event(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  auto side = connect_side(options, channel, context, pd, 4096, {});
  if (options.first) {
    Send send;
    fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 8, 0);
    send.wr.wr.rdma.rkey ^= 0x5a00;
    post(*side, send.wr);
    (void)wait_completion(side->send_cq.get());
    channel.barrier();
  } else {
    channel.barrier();
    require(readable(context->async_fd, 5000), "no asynchronous event");
    side.reset();
    require(!readable(context->async_fd, 50), "the event of a destroyed QP can still be read");
  }
  channel.barrier();
}

constexpr std::array kCases = {
    Case{"solicited", solicited},
    Case{"events-ping-pong", ping_pong_by_events},
    Case{"events-1000-queues", many_armed_queues},
    Case{"async-access-error", access_error_event},
    Case{"async-cq-overflow", queue_overflow_event},
    Case{"async-destroyed", destroyed_with_event},
};

}  // namespace

std::span<const Case> event_cases() {
  return kCases;
}

}  // namespace uroce::e2e
