// What hardware says when something is wrong: statuses, flush order, and that nothing was written.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "tests/e2e/verbs_kit.hpp"

namespace uroce::e2e {
namespace {

constexpr size_t kMemory = 64 * 1024;

void require_status(const ibv_wc& wc, ibv_wc_status expected, std::string_view what) {
  require(wc.status == expected, "{}: {} instead of {}", what, ibv_wc_status_str(wc.status),
          ibv_wc_status_str(expected));
}

void require_flushed(ibv_cq* cq, uint64_t wr_id) {
  const ibv_wc wc = wait_completion(cq);
  require(wc.wr_id == wr_id, "flush of {} instead of {}", wc.wr_id, wr_id);
  require_status(wc, IBV_WC_WR_FLUSH_ERR, "what was queued behind");
}

void require_state(Side& side, ibv_qp_state expected) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  require(ibv_query_qp(side.qp.get(), &attr, IBV_QP_STATE, &init) == 0, "query_qp");
  require(attr.qp_state == expected, "QP state {} instead of {}", static_cast<int>(attr.qp_state),
          static_cast<int>(expected));
}

struct Wrong {
  std::string_view what;
  ibv_wr_opcode opcode;
  ibv_wc_status expected;
  void (*spoil)(Send& send, Side& side);
};

constexpr auto kAtomic = IBV_WR_ATOMIC_FETCH_AND_ADD;
constexpr std::array kRemoteErrors = {
    Wrong{"WRITE with a wrong R_Key", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR,
          [](Send& send, Side&) { send.wr.wr.rdma.rkey ^= 0x5a00; }},
    Wrong{"WRITE with a stale key byte", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR,
          [](Send& send, Side&) { send.wr.wr.rdma.rkey ^= 1; }},
    Wrong{"READ with a wrong R_Key", IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR,
          [](Send& send, Side&) { send.wr.wr.rdma.rkey ^= 0x5a00; }},
    Wrong{"ATOMIC with a wrong R_Key", kAtomic, IBV_WC_REM_ACCESS_ERR,
          [](Send& send, Side&) { send.wr.wr.atomic.rkey ^= 0x5a00; }},
    Wrong{"WRITE across the end", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR,
          [](Send& send, Side& side) {
            send.wr.wr.rdma.remote_addr = side.peer.address + side.peer.length - 7;
          }},
    Wrong{"WRITE before the beginning", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR,
          [](Send& send, Side& side) { send.wr.wr.rdma.remote_addr = side.peer.address - 1; }},
    Wrong{"READ across the end", IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR,
          [](Send& send, Side& side) {
            send.wr.wr.rdma.remote_addr = side.peer.address + side.peer.length - 7;
          }},
    Wrong{"READ whose range wraps", IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR,
          [](Send& send, Side&) { send.wr.wr.rdma.remote_addr = ~0ull - 3; }},
    Wrong{"a wrong L_Key", IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR,
          [](Send& send, Side&) { send.sge.lkey ^= 0x5a00; }},
    Wrong{"a local range across the end", IBV_WR_SEND, IBV_WC_LOC_PROT_ERR,
          [](Send& send, Side& side) {
            send.sge.addr = reinterpret_cast<uint64_t>(side.at(0)) + side.memory.size() - 7;
          }},
};

// The failing request completes with its status, those behind it are flushed in order, and the
// peer's memory holds what it held.
void one_wrong_request(const Options& options, SideChannel& channel, const Context& context,
                       const Pd& pd, const Wrong& wrong) {
  const auto side = connect_side(options, channel, context, pd, kMemory, {});
  fill_pattern(side->memory, 5);
  channel.barrier();
  if (options.first) {
    memset(side->at(0), 0xee, 4096);
    Send sends[4];
    for (uint64_t i = 0; i < 4; ++i) {
      fill_send(sends[i], *side, i == 1 ? wrong.opcode : IBV_WR_RDMA_READ, 0, 8, 1024, i);
      if (i < 3) sends[i].wr.next = &sends[i + 1].wr;
    }
    if (wrong.opcode == kAtomic) {
      sends[1].wr.wr.atomic.remote_addr = side->peer.address + 1024;
      sends[1].wr.wr.atomic.rkey = side->peer.rkey;
    }
    wrong.spoil(sends[1], *side);
    sends[1].wr.send_flags = 0;  // a failed request completes, signalled or not
    post(*side, sends[0].wr);
    require_status(wait_completion(side->send_cq.get()), IBV_WC_SUCCESS, "the one before");
    const ibv_wc wc = wait_completion(side->send_cq.get());
    require(wc.wr_id == 1, "{}: completion of {}", wrong.what, wc.wr_id);
    require_status(wc, wrong.expected, wrong.what);
    require_flushed(side->send_cq.get(), 2);
    require_flushed(side->send_cq.get(), 3);
    require_state(*side, IBV_QPS_ERR);
  }
  channel.barrier();
  if (!options.first) {
    require(first_difference(side->memory, 5) == kMemory, "{}: memory was written", wrong.what);
  }
}

void request_errors(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  for (const Wrong& wrong : kRemoteErrors) {
    one_wrong_request(options, channel, context, pd, wrong);
  }
}

// What the region does not grant, what another protection domain owns, and what is no longer there.
void region_rights(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const Pd other = make_pd(context);
  struct Grant {
    std::string_view what;
    ibv_wr_opcode opcode;
    int access;
    bool other_pd, deregister;
  };
  constexpr std::array kGrants = {
      Grant{"WRITE to a read-only region", IBV_WR_RDMA_WRITE,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, false, false},
      Grant{"READ from a write-only region", IBV_WR_RDMA_READ,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, false, false},
      Grant{"WRITE to a region of another PD", IBV_WR_RDMA_WRITE, kAllAccess, true, false},
      Grant{"READ from a deregistered region", IBV_WR_RDMA_READ, kAllAccess, false, true},
  };
  for (const Grant& grant : kGrants) {
    const auto side = connect_side(options, channel, context, pd, kMemory, {});
    std::vector<std::byte> target(4096, std::byte{7});
    Mr mr = make_mr(grant.other_pd ? other : pd, target, grant.access);
    const uint32_t rkey = channel.exchange(mr->rkey);
    const auto address = channel.exchange(reinterpret_cast<uint64_t>(target.data()));
    if (grant.deregister) mr.reset();
    channel.barrier();
    if (options.first) {
      Send send;
      fill_send(send, *side, grant.opcode, 0, 64, 0, 1);
      send.wr.wr.rdma.remote_addr = address;
      send.wr.wr.rdma.rkey = rkey;
      post(*side, send.wr);
      require_status(wait_completion(side->send_cq.get()), IBV_WC_REM_ACCESS_ERR, grant.what);
    }
    channel.barrier();
    for (const std::byte byte : target) require(byte == std::byte{7}, "{}: written", grant.what);
  }
}

// The queue pair's own rights stand before the region's.
void queue_pair_rights(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, kAtomic}) {
    PairOptions pair;
    pair.qp_access = IBV_ACCESS_LOCAL_WRITE;
    const auto side = connect_side(options, channel, context, pd, kMemory, pair);
    if (options.first) {
      Send send;
      fill_send(send, *side, opcode, 0, 8, 0, 1);
      if (opcode == kAtomic) {
        send.wr.wr.atomic.remote_addr = side->peer.address;
        send.wr.wr.atomic.rkey = side->peer.rkey;
      }
      post(*side, send.wr);
      const ibv_wc wc = wait_completion(side->send_cq.get());
      const bool refused =
          wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_ACCESS_ERR;
      require(refused, "opcode {} without the QP's right: {}", static_cast<int>(opcode),
              ibv_wc_status_str(wc.status));
    }
    channel.barrier();
  }
}

void receive_too_small(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, kMemory, {});
  if (!options.first) {
    post_receive(*side, 0, 99, 1);
    post_receive(*side, 1024, 99, 2);
  }
  channel.barrier();
  if (options.first) {
    Send send;
    fill_send(send, *side, IBV_WR_SEND, 0, 100, 0, 1);
    post(*side, send.wr);
    require_status(wait_completion(side->send_cq.get()), IBV_WC_REM_INV_REQ_ERR, "sender");
  } else {
    const ibv_wc wc = wait_completion(side->recv_cq.get());
    require(wc.wr_id == 1, "wr_id {}", wc.wr_id);
    require_status(wc, IBV_WC_LOC_LEN_ERR, "receiver");
    require_flushed(side->recv_cq.get(), 2);
    require(side->memory[99] == std::byte{0}, "the byte behind the receive buffer was written");
  }
  channel.barrier();
}

void receiver_not_ready(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  PairOptions pair;
  pair.rnr_retry = 2;
  auto side = connect_side(options, channel, context, pd, kMemory, pair);
  if (options.first) {
    Send send;
    fill_send(send, *side, IBV_WR_SEND, 0, 100, 0, 1);
    post(*side, send.wr);
    require_status(wait_completion(side->send_cq.get()), IBV_WC_RNR_RETRY_EXC_ERR,
                   "SEND without a receive");
    require_state(*side, IBV_QPS_ERR);
  }
  channel.barrier();
  pair.rnr_retry = 7;  // for ever
  side = connect_side(options, channel, context, pd, kMemory, pair);
  if (options.first) {
    fill_pattern({side->at(0), 3000}, 3);
    Send send;
    fill_send(send, *side, IBV_WR_SEND, 0, 3000, 0, 2);
    post(*side, send.wr);
    wait_success(side->send_cq.get(), "SEND to a receiver that was late");
  } else {
    usleep(100'000);
    post_receive(*side, 0, 4096, 7);
    const ibv_wc wc = wait_success(side->recv_cq.get(), "late receive");
    require(wc.byte_len == 3000 && first_difference({side->at(0), 3000}, 3) == 3000, "its data");
  }
  channel.barrier();
}

// The program itself moves the queue pair to ERROR: both queues are flushed in order, and so is
// what is posted afterwards.
void flush_order(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  PairOptions pair;
  pair.rnr_retry = 7;
  pair.min_rnr_timer = 31;  // 491 ms: the SENDs stay queued
  const auto side = connect_side(options, channel, context, pd, kMemory, pair);
  if (options.first) {
    for (uint64_t i = 0; i < 10; ++i) {
      post_receive(*side, 0, 64, 100 + i);
      Send send;
      fill_send(send, *side, IBV_WR_SEND, 0, 64, 0, i);
      if (i % 2 == 1) send.wr.send_flags = 0;
      post(*side, send.wr);
    }
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    require(ibv_modify_qp(side->qp.get(), &attr, IBV_QP_STATE) == 0, "modify_qp to ERR");
    for (uint64_t i = 0; i < 10; ++i) {
      require_flushed(side->send_cq.get(), i);
      require_flushed(side->recv_cq.get(), 100 + i);
    }
    Send send;
    fill_send(send, *side, IBV_WR_SEND, 0, 64, 0, 55);
    post(*side, send.wr);
    post_receive(*side, 0, 64, 56);
    require_flushed(side->send_cq.get(), 55);
    require_flushed(side->recv_cq.get(), 56);
    attr.qp_state = IBV_QPS_RESET;
    require(ibv_modify_qp(side->qp.get(), &attr, IBV_QP_STATE) == 0, "modify_qp to RESET");
    require_state(*side, IBV_QPS_RESET);
  }
  channel.barrier();
}

void peer_gone(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  PairOptions pair;
  pair.timeout = 10;  // 4.2 ms
  pair.retry_count = 3;
  auto side = connect_side(options, channel, context, pd, kMemory, pair);
  if (!options.first) side.reset();
  channel.barrier();
  if (options.first) {
    const double start = now_ms();
    Send send;
    fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 100, 0, 1);
    post(*side, send.wr);
    require_status(wait_completion(side->send_cq.get()), IBV_WC_RETRY_EXC_ERR, "no queue pair");
    const double took = now_ms() - start;
    require(took >= 4 * 4.19, "gave up after {:.1f} ms, before the retries were over", took);
    require(took < 2000, "gave up only after {:.1f} ms", took);
  }
  channel.barrier();
}

// What is not mapped cannot be registered, as the kernel cannot pin it; nor may a range wrap.
void unmapped_memory(const Options& options, SideChannel&) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  constexpr size_t kPage = 4096;
  void* const pages =
      mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const first = static_cast<std::byte*>(pages);
  { const Mr whole = make_mr(pd, {first, 3 * kPage}); }
  munmap(first + kPage, kPage);  // a hole in the middle
  const auto require_refused = [&](void* address, size_t length, std::string_view what) {
    errno = 0;
    ibv_mr* const mr = ibv_reg_mr(pd.get(), address, length, kAllAccess);
    require(mr == nullptr, "{} can be registered", what);
    require(errno == EFAULT || errno == EINVAL || errno == ENOMEM, "{}: errno {}", what, errno);
  };
  require_refused(first, 3 * kPage, "a range with a hole");
  require_refused(first + kPage, kPage, "an unmapped page");
  require_refused(reinterpret_cast<void*>(~0ull - 100), 4096, "a range that wraps");
  { const Mr end = make_mr(pd, {first + 2 * kPage, kPage}); }
  munmap(pages, 3 * kPage);
}

constexpr std::array kCases = {
    Case{"request-errors", request_errors},
    Case{"region-rights", region_rights},
    Case{"queue-pair-rights", queue_pair_rights},
    Case{"receive-too-small", receive_too_small},
    Case{"receiver-not-ready", receiver_not_ready},
    Case{"flush-order", flush_order},
    Case{"peer-gone", peer_gone},
    Case{"unmapped-memory", unmapped_memory},
};

}  // namespace

std::span<const Case> error_cases() {
  return kCases;
}

}  // namespace uroce::e2e
