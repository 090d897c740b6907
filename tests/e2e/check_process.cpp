// Threads that post and poll at once, and what a fork does to the card.
#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/e2e/verbs_kit.hpp"

namespace uroce::e2e {
namespace {

constexpr uint32_t kThreads = 4;
constexpr uint32_t kPerThread = 2000;
constexpr uint32_t kMessage = 96;  // bytes

// Several threads post to one queue pair, others poll its CQ: each request completes once.
void shared_queue_pair(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, kThreads * 4096, {});
  if (options.first) {
    std::vector<std::atomic<uint32_t>> completed(kThreads * kPerThread);
    std::atomic<uint32_t> done{0};
    std::vector<std::thread> threads;
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (uint32_t i = 0; i < kPerThread; ++i) {
          Send send;
          fill_send(send, *side, IBV_WR_RDMA_WRITE, thread * 4096, kMessage, thread * 4096,
                    thread * kPerThread + i);
          ibv_send_wr* bad = nullptr;
          int error = 0;
          while ((error = ibv_post_send(side->qp.get(), &send.wr, &bad)) == ENOMEM) {
            std::this_thread::yield();
          }
          require(error == 0, "post_send: {}", strerror(error));
        }
      });
      threads.emplace_back([&] {
        std::array<ibv_wc, 16> wcs;
        while (done.load() < kThreads * kPerThread) {
          const int count = ibv_poll_cq(side->send_cq.get(), 16, wcs.data());
          require(count >= 0, "poll_cq gave {}", count);
          for (int i = 0; i < count; ++i) {
            require(wcs[static_cast<size_t>(i)].status == IBV_WC_SUCCESS, "{}",
                    ibv_wc_status_str(wcs[static_cast<size_t>(i)].status));
            completed.at(wcs[static_cast<size_t>(i)].wr_id).fetch_add(1);
            done.fetch_add(1);
          }
          if (count == 0) std::this_thread::yield();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& count : completed) {
      require(count.load() == 1, "a request completed {} times", count.load());
    }
  }
  channel.barrier();
}

// Each thread has its own queue pair and its own data, all at once on one device.
void queue_pair_per_thread(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  std::vector<std::unique_ptr<Side>> sides;
  for (uint32_t i = 0; i < kThreads; ++i) {
    sides.push_back(connect_side(options, channel, context, pd, 16 * 1024, {}));
  }
  const auto work = [&](uint32_t index) {
    Side& side = *sides[index];
    for (uint32_t round = 1; round <= 200; ++round) {
      fill_pattern({side.at(0), 5000}, index * 1000 + round);
      Send send;
      fill_send(send, side, IBV_WR_RDMA_WRITE, 0, 5000, 8192);
      post(side, send.wr);
      wait_success(side.send_cq.get(), "WRITE");
      fill_send(send, side, IBV_WR_RDMA_READ, 0, 5000, 8192);
      memset(side.at(0), 0, 5000);
      post(side, send.wr);
      wait_success(side.send_cq.get(), "READ");
      require(first_difference({side.at(0), 5000}, index * 1000 + round) == 5000,
              "thread {}, round {}: READ brought wrong data", index, round);
    }
  };
  if (options.first) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
  }
  channel.barrier();
}

// In the forked child the inherited objects are dead, and say so.
int use_inherited(Side& side, ibv_context* context) {
  Send send;
  fill_send(send, side, IBV_WR_RDMA_WRITE, 0, 8, 0);
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(side.qp.get(), &send.wr, &bad);
  if (error != EIO) return 10;
  errno = 0;
  if (ibv_create_cq(context, 4, nullptr, nullptr, 0) != nullptr || errno != EIO) return 11;
  ibv_wc wc{};
  if (ibv_poll_cq(side.send_cq.get(), 1, &wc) > 0) return 12;
  return 0;
}

// The child may open the device afresh on the fabric; the parent's work goes on meanwhile.
void fork_keeps_parent(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, 8192, {});
  if (options.first) {
    Send send;
    const auto write_once = [&](std::string_view what) {
      fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 4096, 0);
      post(*side, send.wr);
      wait_success(side->send_cq.get(), what);
    };
    write_once("before the fork");
    const pid_t child = fork();
    require(child >= 0, "fork: {}", strerror(errno));
    if (child == 0) {
      const int wrong = use_inherited(*side, context.get());
      if (wrong != 0) _exit(wrong);
      const Context own = open_device(options.device);
      const Pd own_pd = make_pd(own);
      const Cq own_cq = make_cq(own, 4);
      require(ibv_destroy_cq(own_cq.get()) == 0, "the child's own CQ");
      _exit(0);
    }
    for (int i = 0; i < 200; ++i) write_once("while the child lives");
    int status = 0;
    require(waitpid(child, &status, 0) == child, "waitpid");
    require(status == 0, "the child ended with wait status {}", status);
    for (int i = 0; i < 200; ++i) write_once("after the child has gone");
  }
  channel.barrier();
}

// A child that executes another program (as system() does) leaves the parent's card alone.
void fork_and_exec(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, 8192, {});
  if (options.first) {
    for (int i = 0; i < 5; ++i) {
      require(std::system("true") == 0, "system(\"true\")");
      Send send;
      fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 4096, 0);
      post(*side, send.wr);
      wait_success(side->send_cq.get(), "WRITE after system()");
    }
  }
  channel.barrier();
}

constexpr std::array kCases = {
    Case{"threads-one-queue-pair", shared_queue_pair},
    Case{"threads-own-queue-pairs", queue_pair_per_thread},
    Case{"fork", fork_keeps_parent},
    Case{"fork-exec", fork_and_exec},
};

}  // namespace

std::span<const Case> process_cases() {
  return kCases;
}

}  // namespace uroce::e2e
