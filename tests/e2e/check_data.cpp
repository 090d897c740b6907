// Every operation at every interesting size, with the data and its surroundings verified.
#include <string.h>

#include <algorithm>
#include <array>

#include "tests/e2e/verbs_kit.hpp"

namespace uroce::e2e {
namespace {

constexpr uint32_t kMaxMessage = (1u << 20) + 1;
constexpr size_t kMargin = 128;  // bytes before and behind a message that must stay untouched
constexpr size_t kRoom = kMaxMessage + 2 * kMargin + 64;
constexpr uint64_t kUntouched = 99;  // pattern seed of memory that nobody may write

constexpr std::array kSizes = {
    0u,         1u,    2u,    3u,    4u,     5u,     7u,     8u,     9u,
    15u,        16u,   63u,   64u,   65u,    127u,   255u,   256u,   257u,
    511u,       513u,  1023u, 1024u, 1025u,  2048u,  3071u,  4095u,  4096u,
    4097u,      8191u, 8192u, 8193u, 12288u, 65535u, 65536u, 65537u, kMaxMessage - 1,
    kMaxMessage};

struct Operation {
  ibv_wr_opcode opcode;
  bool receives;  // consumes a receive work request
  bool immediate;
  bool into_receiver;  // lands in the receive buffer rather than at a remote address
};
constexpr std::array kOperations = {
    Operation{IBV_WR_SEND, true, false, true},
    Operation{IBV_WR_SEND_WITH_IMM, true, true, true},
    Operation{IBV_WR_RDMA_WRITE, false, false, false},
    Operation{IBV_WR_RDMA_WRITE_WITH_IMM, true, true, false},
    Operation{IBV_WR_RDMA_READ, false, false, false},
};

// Exactly [offset, offset + length) holds the pattern of `seed`; around it nothing changed.
void require_landed(Side& side, size_t offset, uint32_t length, uint64_t seed) {
  std::vector<std::byte> before(side.memory.size());
  fill_pattern(before, kUntouched);
  const auto differs = [&](size_t from, size_t to) {
    return memcmp(side.at(from), before.data() + from, to - from) != 0;
  };
  const size_t wrong = first_difference({side.at(offset), length}, seed);
  require(wrong == length, "byte {} of {} is wrong", wrong, length);
  require(!differs(offset - kMargin, offset), "memory before the message of {} was written",
          length);
  require(!differs(offset + length, offset + length + kMargin),
          "memory behind the message of {} was written", length);
}

void check_receive(Side& side, const Operation& operation, uint32_t length, uint64_t wr_id) {
  const ibv_wc wc = wait_success(side.recv_cq.get(), "receive");
  require(wc.wr_id == wr_id, "wr_id {} instead of {}", wc.wr_id, wr_id);
  require(wc.byte_len == length, "byte_len {} instead of {}", wc.byte_len, length);
  const bool with_imm = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  require(with_imm == operation.immediate, "IBV_WC_WITH_IMM is {}", with_imm);
  require(!with_imm || wc.imm_data == htobe32(length ^ 0xabcd1234), "wrong immediate data");
  const auto expected = operation.into_receiver ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  require(wc.opcode == expected, "opcode {}", static_cast<int>(wc.opcode));
  require(wc.qp_num == side.qp->qp_num, "qp_num {}", wc.qp_num);
}

void request(Side& side, const Operation& operation, uint32_t length, size_t local, size_t remote,
             uint64_t wr_id) {
  Send send;
  fill_send(send, side, operation.opcode, local, length, remote, wr_id);
  if (operation.immediate) send.wr.imm_data = htobe32(length ^ 0xabcd1234);
  post(side, send.wr);
  const ibv_wc wc = wait_success(side.send_cq.get(), "request");
  require(wc.wr_id == wr_id && wc.qp_num == side.qp->qp_num, "wrong completion");
  static constexpr std::array<int, 5> kExpected = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE,
                                                   IBV_WC_SEND, IBV_WC_SEND, IBV_WC_RDMA_READ};
  require(wc.opcode == kExpected[operation.opcode], "completion of opcode {}",
          static_cast<int>(wc.opcode));
}

// One message; the second process is the target, or for READ the source.
void exchange_message(const Options& options, SideChannel& channel, Side& side,
                      const Operation& operation, uint32_t length, uint64_t seed) {
  const size_t local = kMargin + seed % 61;  // alignments vary, on both sides
  const size_t remote = kMargin + seed % 53;
  const bool read = operation.opcode == IBV_WR_RDMA_READ;
  const bool is_target = options.first == read;
  const size_t landing = options.first ? local : remote;
  if (is_target) {
    // Only what the check looks at: the rest may hold what it likes.
    const size_t end = landing + length + kMargin;
    fill_pattern({side.at(0), end}, kUntouched);
  } else {
    fill_pattern({side.at(landing), length}, seed);
  }
  if (!options.first && operation.receives) {
    post_receive(side, operation.into_receiver ? remote : 0, operation.into_receiver ? length : 0,
                 seed);
  }
  channel.barrier();
  if (options.first) request(side, operation, length, local, remote, seed);
  if (!options.first && operation.receives) check_receive(side, operation, length, seed);
  if (is_target) {
    if (!operation.receives) channel.barrier();
    require_landed(side, landing, length, seed);
    if (operation.receives) channel.barrier();
  } else {
    channel.barrier();
  }
}

void run_all(const Options& options, SideChannel& channel, ibv_mtu mtu) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  PairOptions pair;
  pair.path_mtu = mtu;
  const auto side = connect_side(options, channel, context, pd, kRoom, pair);
  uint64_t seed = 1000;
  for (const Operation& operation : kOperations) {
    for (const uint32_t length : kSizes) {
      exchange_message(options, channel, *side, operation, length, ++seed);
    }
  }
  require_empty(side->send_cq.get(), "after all");
  require_empty(side->recv_cq.get(), "after all");
}

using SgeList = std::array<ibv_sge, 32>;

// Entries of uneven lengths, some empty, in reverse order in memory so that adjacency cannot hide a
// mistake. The last one has room for more than the rest together.
SgeList uneven_list(Side& side, uint32_t step, uint32_t last_length) {
  SgeList list;
  for (uint32_t i = 0; i < list.size(); ++i) {
    const uint32_t length = i % 5 == 3 ? 0 : (i * step) % 1777;
    list[i] = {reinterpret_cast<uint64_t>(side.at((31 - i) * 8192)), length, side.mr->lkey};
  }
  list[31] = {reinterpret_cast<uint64_t>(side.at(300'000)), last_length, side.mr->lkey};
  return list;
}

uint32_t total_length(const SgeList& list) {
  uint32_t total = 0;
  for (const ibv_sge& sge : list) total += sge.length;
  return total;
}

void scatter_pattern(const SgeList& list, uint64_t seed) {
  std::vector<std::byte> message(total_length(list));
  fill_pattern(message, seed);
  size_t offset = 0;
  for (const ibv_sge& sge : list) {
    memcpy(reinterpret_cast<void*>(sge.addr), message.data() + offset, sge.length);
    offset += sge.length;
  }
}

void require_pattern(const SgeList& list, uint32_t length, uint64_t seed, std::string_view what) {
  std::vector<std::byte> message;
  for (const ibv_sge& sge : list) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(sge.addr);
    message.insert(message.end(), bytes, bytes + sge.length);
  }
  message.resize(length);
  const size_t wrong = first_difference(message, seed);
  require(wrong == length, "{}: byte {} of {} is wrong", what, wrong, length);
}

void post_list(Side& side, ibv_wr_opcode opcode, SgeList& list, size_t remote) {
  Send send;
  fill_send(send, side, opcode, 0, 0, remote);
  send.wr.sg_list = list.data();
  send.wr.num_sge = static_cast<int>(list.size());
  post(side, send.wr);
  wait_success(side.send_cq.get(), "request with 32 entries");
}

// 32 entries on either side: a gathered SEND into a scattered receive, a gathered WRITE, a
// scattered READ.
void scatter_gather(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  PairOptions pair;
  pair.max_sge = 32;
  const auto side = connect_side(options, channel, context, pd, 1u << 20, pair);
  constexpr size_t kRemote = 700'000;
  SgeList list = uneven_list(*side, options.first ? 331 : 577, options.first ? 4321 : 200'000);
  const uint32_t length = channel.exchange(total_length(list));
  if (options.first) {
    const uint32_t own = total_length(list);
    scatter_pattern(list, 7);
    channel.barrier();
    post_list(*side, IBV_WR_SEND, list, 0);
    post_list(*side, IBV_WR_RDMA_WRITE, list, kRemote);
    channel.barrier();
    channel.barrier();  // the peer has looked, and put another pattern there
    post_list(*side, IBV_WR_RDMA_READ, list, kRemote);
    require_pattern(list, own, 9, "scattered READ");
  } else {
    ibv_recv_wr wr{};
    wr.sg_list = list.data();
    wr.num_sge = static_cast<int>(list.size());
    ibv_recv_wr* bad = nullptr;
    require(ibv_post_recv(side->qp.get(), &wr, &bad) == 0, "post_recv of 32 entries");
    channel.barrier();
    const ibv_wc wc = wait_success(side->recv_cq.get(), "scattered receive");
    require(wc.byte_len == length, "byte_len {} instead of {}", wc.byte_len, length);
    channel.barrier();
    require_pattern(list, length, 7, "gathered SEND");
    require(first_difference({side->at(kRemote), length}, 7) == length, "gathered WRITE is wrong");
    fill_pattern({side->at(kRemote), length}, 9);
    channel.barrier();
  }
  channel.barrier();  // the READ needs the queue pair of the peer until here
}

// Inline data is taken at post: what the program does to its buffer afterwards has no effect.
void inline_data(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  PairOptions pair;
  pair.max_inline = 512;
  const auto side = connect_side(options, channel, context, pd, 8192, pair);
  for (uint32_t length = 0; length <= 512; length += length < 70 ? 1 : 13) {
    if (options.first) {
      fill_pattern({side->at(0), length}, length);
      Send send;
      fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, length, 1024);
      send.sge.lkey = 0;  // not looked at for inline data
      send.wr.send_flags |= IBV_SEND_INLINE;
      post(*side, send.wr);
      memset(side->at(0), 0xee, length);
      wait_success(side->send_cq.get(), "inline write");
      channel.barrier();
    } else {
      channel.barrier();
      require(first_difference({side->at(1024), length}, length) == length,
              "inline data of {} bytes is wrong", length);
    }
    channel.barrier();
  }
  if (options.first) {
    Send send;
    fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 4096, 1024);
    send.wr.send_flags |= IBV_SEND_INLINE;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(side->qp.get(), &send.wr, &bad);
    require(error == ENOMEM || error == EINVAL, "too much inline data gave {}", error);
    require(bad == &send.wr, "bad_wr does not name the refused request");
  }
}

// A deep queue of unsignalled writes behind each other, the last one signalled.
void pipelined(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  constexpr uint32_t kLength = 3000;
  constexpr uint32_t kDepth = 200;
  const auto side = connect_side(options, channel, context, pd, kLength * kDepth, {});
  for (uint64_t round = 1; round <= 20; ++round) {
    if (options.first) {
      fill_pattern(side->memory, round);
      for (uint32_t i = 0; i < kDepth; ++i) {
        Send send;
        fill_send(send, *side, IBV_WR_RDMA_WRITE, i * kLength, kLength, i * kLength, i);
        if (i + 1 < kDepth) send.wr.send_flags = 0;
        post(*side, send.wr);
      }
      const ibv_wc wc = wait_success(side->send_cq.get(), "last write");
      require(wc.wr_id == kDepth - 1, "wr_id {}", wc.wr_id);
      require_empty(side->send_cq.get(), "unsignalled writes");
    }
    channel.barrier();
    if (!options.first) {
      const size_t wrong = first_difference(side->memory, round);
      require(wrong == side->memory.size(), "round {}: byte {} is wrong", round, wrong);
    }
    channel.barrier();
  }
}

constexpr std::array kCases = {
    Case{"data-mtu-256", [](const Options& o, SideChannel& c) { run_all(o, c, IBV_MTU_256); }},
    Case{"data-mtu-512", [](const Options& o, SideChannel& c) { run_all(o, c, IBV_MTU_512); }},
    Case{"data-mtu-1024", [](const Options& o, SideChannel& c) { run_all(o, c, IBV_MTU_1024); }},
    Case{"data-mtu-2048", [](const Options& o, SideChannel& c) { run_all(o, c, IBV_MTU_2048); }},
    Case{"data-mtu-4096", [](const Options& o, SideChannel& c) { run_all(o, c, IBV_MTU_4096); }},
    Case{"scatter-gather", scatter_gather},
    Case{"inline", inline_data},
    Case{"pipelined", pipelined},
};

}  // namespace

std::span<const Case> data_cases() {
  return kCases;
}

}  // namespace uroce::e2e
