// Order: fences, atomics, and that who sees the last word of a message sees all of it.
#include <array>
#include <atomic>

#include "tests/e2e/verbs_kit.hpp"

namespace uroce::e2e {
namespace {

std::atomic_ref<uint64_t> word_at(Side& side, size_t offset) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(side.at(offset)));
}

// A fenced WRITE sends what the READ before it brought, though both are posted at once.
void fence(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, 64 * 1024, {});
  constexpr uint32_t kLength = 10'000;
  for (uint64_t round = 1; round <= 100; ++round) {
    if (!options.first) fill_pattern({side->at(0), kLength}, round);
    channel.barrier();
    if (options.first) {
      Send read;
      Send write;
      fill_send(read, *side, IBV_WR_RDMA_READ, 0, kLength, 0, 1);
      fill_send(write, *side, IBV_WR_RDMA_WRITE, 0, kLength, 32 * 1024, 2);
      write.wr.send_flags |= IBV_SEND_FENCE;
      read.wr.next = &write.wr;
      post(*side, read.wr);
      require(wait_success(side->send_cq.get(), "READ").wr_id == 1, "READ completes first");
      require(wait_success(side->send_cq.get(), "WRITE").wr_id == 2, "WRITE completes second");
    }
    channel.barrier();
    if (!options.first) {
      require(first_difference({side->at(32 * 1024), kLength}, round) == kLength,
              "round {}: the fenced WRITE overtook the READ", round);
    }
  }
}

ibv_wc atomic(Side& side, ibv_wr_opcode opcode, size_t remote, uint64_t compare_add,
              uint64_t swap) {
  Send send;
  fill_send(send, side, opcode, 0, 8, 0);
  send.wr.wr.atomic.remote_addr = side.peer.address + remote;
  send.wr.wr.atomic.rkey = side.peer.rkey;
  send.wr.wr.atomic.compare_add = compare_add;
  send.wr.wr.atomic.swap = swap;
  post(side, send.wr);
  return wait_completion(side.send_cq.get());
}

uint64_t atomic_value(Side& side, ibv_wr_opcode opcode, size_t remote, uint64_t compare_add,
                      uint64_t swap = 0) {
  const ibv_wc wc = atomic(side, opcode, remote, compare_add, swap);
  require(wc.status == IBV_WC_SUCCESS, "atomic: {}", ibv_wc_status_str(wc.status));
  require(wc.byte_len == 8, "an atomic's byte_len is {}", wc.byte_len);
  return word_at(side, 0).load();
}

void atomic_values(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, 4096, {});
  constexpr auto kAdd = IBV_WR_ATOMIC_FETCH_AND_ADD;
  constexpr auto kSwap = IBV_WR_ATOMIC_CMP_AND_SWP;
  word_at(*side, 64).store(~0ull);
  channel.barrier();
  if (options.first) {
    require(atomic_value(*side, kAdd, 64, 2) == ~0ull, "FETCH_AND_ADD gives the old value");
    require(atomic_value(*side, kAdd, 64, 0) == 1, "FETCH_AND_ADD wraps");
    require(atomic_value(*side, kSwap, 64, 7, 9) == 1, "a failing CMP_AND_SWP gives the value");
    require(atomic_value(*side, kSwap, 64, 1, 0x1122334455667788) == 1, "CMP_AND_SWP");
    require(atomic_value(*side, kAdd, 64, 0) == 0x1122334455667788, "CMP_AND_SWP stored");
    const ibv_wc wc = atomic(*side, kAdd, 65, 1, 0);
    require(wc.status == IBV_WC_REM_INV_REQ_ERR, "an unaligned atomic gave {}",
            ibv_wc_status_str(wc.status));
  }
  channel.barrier();
  if (!options.first) {
    require(word_at(*side, 64).load() == 0x1122334455667788, "the word in memory");
    require(word_at(*side, 56).load() == 0 && word_at(*side, 72).load() == 0, "its neighbours");
  }
}

// Both processes, through the card, and the owner's CPU count on one word: nothing is lost.
void atomic_contention(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, 4096, {});
  constexpr uint64_t kRounds = 2000;
  word_at(*side, 128).store(0);
  channel.barrier();
  uint64_t previous = 0;
  for (uint64_t i = 0; i < kRounds; ++i) {
    const uint64_t old = atomic_value(*side, IBV_WR_ATOMIC_FETCH_AND_ADD, 128, 3);
    require(i == 0 || old > previous, "FETCH_AND_ADD went back from {} to {}", previous, old);
    previous = old;
    word_at(*side, 128).fetch_add(5);
  }
  channel.barrier();
  const uint64_t sum = word_at(*side, 128).load();
  require(sum == kRounds * 8, "the sum is {} instead of {}", sum, kRounds * 8);
}

// Ping-pong by WRITE alone: each side spins on the last word of its buffer, and finds every other
// word in place when it changes.
void placement(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  constexpr std::array kSizes = {8u, 64u, 1024u, 4096u, 4104u, 12'352u};
  constexpr size_t kSource = 32 * 1024;
  const auto side = connect_side(options, channel, context, pd, 64 * 1024, {});
  uint64_t value = 0;
  for (const uint32_t size : kSizes) {
    for (int round = 0; round < 100; ++round) {
      ++value;
      const auto send_value = [&] {
        for (size_t at = 0; at < size; at += 8) word_at(*side, kSource + at).store(value);
        Send send;
        fill_send(send, *side, IBV_WR_RDMA_WRITE, kSource, size, 0, value);
        post(*side, send.wr);
        wait_success(side->send_cq.get(), "WRITE");
      };
      if (options.first) send_value();
      const double deadline = now_ms() + 10'000;
      while (word_at(*side, size - 8).load(std::memory_order_acquire) != value) {
        require(now_ms() < deadline, "size {}: the last word never came", size);
      }
      for (size_t at = 0; at < size; at += 8) {
        const uint64_t found = word_at(*side, at).load(std::memory_order_relaxed);
        require(found == value, "size {}: the last word is {}, word {} still {}", size, value,
                at / 8, found);
      }
      if (!options.first) send_value();
    }
    channel.barrier();
  }
}

// Requests of all kinds complete in the order of posting.
void completion_order(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, 1u << 20, {});
  constexpr uint64_t kRequests = 200;
  if (!options.first) {
    for (uint64_t i = 0; i < kRequests; i += 4) post_receive(*side, 0, 8192, i);
  }
  channel.barrier();
  if (options.first) {
    for (uint64_t i = 0; i < kRequests; ++i) {
      constexpr std::array kKinds = {IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
                                     IBV_WR_ATOMIC_FETCH_AND_ADD};
      Send send;
      const ibv_wr_opcode kind = kKinds[i % 4];
      const uint32_t length =
          kind == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : static_cast<uint32_t>(i * 37);
      fill_send(send, *side, kind, 0, length, 512 * 1024, i);
      if (kind == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        send.wr.wr.atomic.remote_addr = side->peer.address + 256 * 1024;
        send.wr.wr.atomic.rkey = side->peer.rkey;
        send.wr.wr.atomic.compare_add = 1;
      }
      post(*side, send.wr);
    }
    for (uint64_t i = 0; i < kRequests; ++i) {
      const ibv_wc wc = wait_success(side->send_cq.get(), "request");
      require(wc.wr_id == i, "completion of {} instead of {}", wc.wr_id, i);
    }
  } else {
    for (uint64_t i = 0; i < kRequests; i += 4) {
      const ibv_wc wc = wait_success(side->recv_cq.get(), "receive");
      require(wc.wr_id == i && wc.byte_len == i * 37, "receive {} of {}", wc.wr_id, wc.byte_len);
    }
  }
  channel.barrier();  // the last requests need the queue pair of the peer until here
}

constexpr std::array kCases = {
    Case{"fence", fence},
    Case{"atomics", atomic_values},
    Case{"atomic-contention", atomic_contention},
    Case{"placement-order", placement},
    Case{"completion-order", completion_order},
};

}  // namespace

std::span<const Case> order_cases() {
  return kCases;
}

}  // namespace uroce::e2e
