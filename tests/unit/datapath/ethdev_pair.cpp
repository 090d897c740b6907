// Makes the two hosts and runs a script in each.
#include "tests/unit/datapath/ethdev_pair.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace uroce::test {
namespace {

constexpr unsigned kPatienceSeconds = 60;

Host describe(int number, int to_peer) {
  Host host;
  host.number = number;
  host.interface = fmt::format("veth{}", number);
  host.own_ipv4 = fmt::format("10.77.0.{}", number + 1);
  host.own_ipv6 = fmt::format("fd77::{}", number + 1);
  host.peer_ipv4 = fmt::format("10.77.0.{}", 2 - number);
  host.peer_ipv6 = fmt::format("fd77::{}", 2 - number);
  host.to_peer = to_peer;
  return host;
}

void enter_namespace() {
  check(unshare(CLONE_NEWNET) == 0, "unshare(CLONE_NEWNET)");
  // Addresses are usable at once; duplicates cannot be here. Absent where IPv6 is switched off.
  shell(
      "for f in all default; do f=/proc/sys/net/ipv6/conf/$f/accept_dad;"
      " test ! -e $f || echo 0 > $f; done; ip link set lo up");
}

[[noreturn]] void live(const Host& host, int mtu, const std::function<void(const Host&)>& script) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(kPatienceSeconds);
  enter_namespace();
  const auto peer = static_cast<pid_t>(host.exchange(static_cast<uint64_t>(getpid())));
  if (host.number == 0) {
    shell(fmt::format("ip link add veth0 mtu {0} type veth peer name veth1 mtu {0} netns {1}", mtu,
                      peer));
  }
  host.meet();
  shell(fmt::format("ip addr add {}/24 dev {}; ip addr add {}/64 dev {} nodad; ip link set {} up",
                    host.own_ipv4, host.interface, host.own_ipv6, host.interface, host.interface));
  host.meet();
  // The link-local address appears once both ends have a carrier.
  shell(
      fmt::format("for i in $(seq 200); do ip -6 addr show dev {0} scope link -tentative |"
                  " grep -q fe80 && exit 0; sleep 0.01; done; exit 1",
                  host.interface));
  host.meet();
  script(host);
  host.meet();
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace

void shell(const std::string& command) {
  check(std::system(command.c_str()) == 0, command);
}

void Host::meet() const {
  exchange(0);
}

uint64_t Host::exchange(uint64_t word) const {
  uint64_t answer = 0;
  check(send(to_peer, &word, sizeof(word), MSG_NOSIGNAL) == sizeof(word), "the peer is gone");
  check(recv(to_peer, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer), "the peer is gone");
  return answer;
}

bool can_make_hosts() {
  const pid_t child = fork();
  if (child == 0) std::_Exit(unshare(CLONE_NEWNET) == 0 ? 0 : 1);
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

bool run_on_two_hosts(int mtu, const std::function<void(const Host&)>& script) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  std::array<pid_t, 2> children{};
  std::fflush(stdout);  // or the children would print it too
  for (int number = 0; number < 2; ++number) {
    children[number] = fork();
    if (children[number] != 0) continue;
    close(ends[1 - number]);
    live(describe(number, ends[number]), mtu, script);
  }
  close(ends[0]);
  close(ends[1]);
  bool good = true;
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    good &= status == 0;
  }
  return good;
}

}  // namespace uroce::test
