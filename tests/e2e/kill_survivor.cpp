// Three roles around kill -9: a survivor, victims that are killed in mid-traffic one after another,
// and a bystander whose work with the survivor must not notice.
//
// kill_survivor survivor SOCKET ROUNDS | victim SOCKET | bystander SOCKET
//
// The survivor prints "traffic N" when victim N may be killed, and "gone N MS" when its queue pair
// reported IBV_WC_RETRY_EXC_ERR, MS milliseconds after the kernel closed the victim's socket.
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>

#include "tests/e2e/verbs_kit.hpp"

namespace uroce::e2e {
namespace {

constexpr size_t kMemory = 256 * 1024;
constexpr uint32_t kLength = 8192;
constexpr int kDepth = 16;

PairOptions victim_pair() {
  PairOptions pair;
  pair.path_mtu = IBV_MTU_4096;
  pair.timeout = 14;  // 67 ms
  pair.retry_count = 3;
  return pair;
}
// Four transmissions, each waiting up to four timeouts (IBTA 9.7.6.1.3), and the scheduler beside
// a CPU hog.
constexpr double kMaxMsUntilError = 4 * 4 * 67.1 + 700;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  require(path.size() < sizeof address.sun_path, "socket path too long");
  memcpy(address.sun_path, path.data(), path.size());
  return address;
}

int listen_on(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  require(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
              listen(fd, 8) == 0,
          "listen on {}: {}", path, strerror(errno));
  return fd;
}

int accept_next(int listener) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  require(fd >= 0, "accept: {}", strerror(errno));
  return fd;
}

int connect_to(const std::string& path) {
  const sockaddr_un address = address_of(path);
  for (int attempt = 0; attempt < 200; ++attempt) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    close(fd);
    usleep(20'000);
  }
  fail(fmt::format("connect to {}: {}", path, strerror(errno)));
}

void say(std::string_view line) {
  fmt::print("{}\n", line);
  fflush(stdout);
}

bool has_ended(int fd) {
  pollfd entry = {fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

// Keeps WRITEs in flight toward the victim until its death ends them.
void outlive(const Options& options, const Context& context, const Pd& pd, int fd, int round) {
  SideChannel channel(fd);
  const auto side = connect_side(options, channel, context, pd, kMemory, victim_pair());
  int in_flight = 0;
  int completed = 0;
  double ended_ms = 0;
  for (;;) {
    while (in_flight < kDepth) {
      Send send;
      fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, kLength, 0);
      post(*side, send.wr);
      ++in_flight;
    }
    if (ended_ms == 0 && has_ended(fd)) ended_ms = now_ms();
    ibv_wc wc{};
    const int count = ibv_poll_cq(side->send_cq.get(), 1, &wc);
    require(count >= 0, "poll_cq gave {}", count);
    require(ended_ms == 0 || now_ms() - ended_ms < kMaxMsUntilError,
            "round {}: no error {:.0f} ms after the victim's end", round, now_ms() - ended_ms);
    if (count == 0) continue;
    --in_flight;
    if (wc.status == IBV_WC_SUCCESS) {
      if (++completed == 100) say(fmt::format("traffic {}", round));
      continue;
    }
    require(wc.status == IBV_WC_RETRY_EXC_ERR, "round {}: {}", round, ibv_wc_status_str(wc.status));
    require(completed >= 100, "round {}: no traffic before the error", round);
    break;
  }
  for (; in_flight > 0; --in_flight) {
    const ibv_wc wc = wait_completion(side->send_cq.get());
    require(wc.status == IBV_WC_WR_FLUSH_ERR, "round {}: {} behind the error", round,
            ibv_wc_status_str(wc.status));
  }
  say(fmt::format("gone {} {:.0f}", round, ended_ms == 0 ? 0 : now_ms() - ended_ms));
}

void run_survivor(const Options& options, const std::string& path, int rounds) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const int listener = listen_on(path);
  SideChannel bystander(accept_next(listener));
  const auto with_bystander = connect_side(options, bystander, context, pd, kMemory);
  say("bystander is here");
  for (int round = 1; round <= rounds; ++round) {
    outlive(options, context, pd, accept_next(listener), round);
  }
  // The bystander is told to stop, and reports that all its work was right.
  bystander.barrier();
  bystander.barrier();
  say(fmt::format("survived {}", rounds));
}

[[noreturn]] void run_victim(const Options& options, const std::string& path) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  SideChannel channel(connect_to(path));
  const auto side = connect_side(options, channel, context, pd, kMemory, victim_pair());
  for (;;) {
    Send send;
    fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, kLength, kLength);
    post(*side, send.wr);
    fill_send(send, *side, IBV_WR_RDMA_READ, kLength, kLength, 0);
    post(*side, send.wr);
    wait_success(side->send_cq.get(), "victim's WRITE");
    wait_success(side->send_cq.get(), "victim's READ");
  }
}

// Writes and reads back until the survivor has had all its rounds.
void run_bystander(const Options& options, const std::string& path) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const int fd = connect_to(path);
  SideChannel channel(fd);
  const auto side = connect_side(options, channel, context, pd, kMemory);
  uint64_t round = 0;
  do {
    ++round;
    fill_pattern({side->at(0), kLength}, round);
    Send send;
    fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, kLength, 0);
    post(*side, send.wr);
    wait_success(side->send_cq.get(), "bystander's WRITE");
    fill_send(send, *side, IBV_WR_RDMA_READ, kMemory / 2, kLength, 0);
    post(*side, send.wr);
    wait_success(side->send_cq.get(), "bystander's READ");
    const size_t wrong = first_difference({side->at(kMemory / 2), kLength}, round);
    require(wrong == kLength, "bystander: byte {} of round {} is wrong", wrong, round);
    usleep(500);
  } while (!has_ended(fd));
  channel.barrier();
  require(round > 20, "the bystander did only {} rounds", round);
  channel.barrier();
}

}  // namespace
}  // namespace uroce::e2e

int main(int argc, char** argv) {
  using namespace uroce::e2e;
  require(argc >= 3, "kill_survivor survivor SOCKET ROUNDS | victim SOCKET | bystander SOCKET");
  const std::string_view role = argv[1];
  const Options options;
  if (role == "survivor" && argc == 4) {
    run_survivor(options, argv[2], atoi(argv[3]));
  } else if (role == "victim") {
    run_victim(options, argv[2]);
  } else if (role == "bystander") {
    run_bystander(options, argv[2]);
  } else {
    fail("unknown role");
  }
  return 0;
}
