// The ethdev wire between two network namespaces. Needs root; exits with 77 (skipped) without.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "datapath/ethdev/interface.hpp"
#include "tests/unit/datapath/ethdev_frames.hpp"

namespace uroce::test {
namespace {

using datapath::Wire;

std::vector<std::byte> pattern(size_t size, unsigned seed) {
  std::vector<std::byte> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 7 + seed);
  return out;
}

// Runs `body` in a forked child; true if it returned.
bool in_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::_Exit(0);
  }
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// A counter of this namespace by the name that /proc/net/snmp (IPv4) or snmp6 gives it.
uint64_t icmp_unreachables_sent() {
  uint64_t sum = 0;
  std::ifstream snmp6("/proc/net/snmp6");
  std::string name;
  uint64_t value = 0;
  while (snmp6 >> name >> value) {
    if (name == "Icmp6OutDestUnreachs") sum += value;
  }
  std::ifstream snmp("/proc/net/snmp");
  std::vector<std::string> names;
  for (std::string line; std::getline(snmp, line);) {
    if (!line.starts_with("Icmp: ")) continue;
    std::vector<std::string> words;
    std::istringstream stream(line);
    for (std::string word; stream >> word;) words.push_back(word);
    if (names.empty()) {
      names = words;
      continue;
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == "OutDestUnreachs") sum += std::stoull(words.at(i));
    }
  }
  return sum;
}

void frames_cross_in_both_directions(const Host& host) {
  auto wire = open_or_fail(host);
  const auto self = describe_or_fail(config_of(host));
  check(self.max_mtu == Mtu::k4096, "an interface of MTU 4200 carries path MTU 4096");
  host.meet();
  const uint64_t link_local_tail = [&] {
    uint64_t tail = 0;
    std::memcpy(&tail, &self.gids[0].gid.bytes[8], 8);
    return host.exchange(tail);
  }();
  Gid peer_link_local = self.gids[0].gid;
  std::memcpy(&peer_link_local.bytes[8], &link_local_tail, 8);
  const std::array<std::pair<Gid, Gid>, 3> routes = {
      {{gid_of(host.own_ipv4), gid_of(host.peer_ipv4)},
       {gid_of(host.own_ipv6), gid_of(host.peer_ipv6)},
       {self.gids[0].gid, peer_link_local}}};
  for (const auto& [source, destination] : routes) {
    auto path = path_or_fail(*wire, source, destination);
    check(wire->wait_resolved(*path, 3'000'000'000), "the kernel resolves the peer");
    host.meet();
    for (const size_t size : {size_t{0}, size_t{1}, size_t{64}, size_t{4096}}) {
      check(send_one(*wire, *path, pattern(size, host.number)), "the wire takes a frame");
      check(receive_one(*wire, 2000, pattern(size, 1 - host.number)),
            fmt::format("a payload of {} bytes arrives", size));
    }
    host.meet();
  }
  check(wire->counters().tx_dropped == 0, "nothing was dropped");
}

void a_silent_neighbour_swallows_frames(const Host& host) {
  if (host.number == 1) return;
  auto wire = open_or_fail(host);
  auto path = path_or_fail(*wire, gid_of(host.own_ipv4), gid_of("10.77.0.99"));
  check(!wire->wait_resolved(*path, 50'000'000), "nobody answers for 10.77.0.99");
  check(!path->resolved.load(), "the path says so");
  for (int i = 0; i < 2000; ++i) {
    check(send_one(*wire, *path, pattern(64, 0)), "frames are swallowed, not parked");
  }
  check(wire->counters().tx_dropped == 2000, "and counted");
  shell(fmt::format("ip neigh replace 10.77.0.99 lladdr 02:00:00:00:00:63 nud permanent dev {}",
                    host.interface));
  check(wire->wait_resolved(*path, 2'000'000'000), "an answer that comes later is learnt");
}

void a_change_of_mac_is_followed(const Host& host) {
  auto wire = open_or_fail(host);
  const auto peer_mac = host.exchange([&] {
    uint64_t word = 0;
    const auto mac = datapath::query_interface(host.interface)->mac;
    for (size_t i = 0; i < mac.size(); ++i) word = word << 8 | mac[i];
    return word;
  }());
  const auto payload = pattern(64, 5);
  if (host.number == 1) {
    check(receive_one(*wire, 5000, payload), "a permanent entry is used");
    host.meet();
    host.meet();  // the MAC is another's now
    check(!receive_one(*wire, 100, payload), "frames no longer come here");
    host.meet();
    check(receive_one(*wire, 5000, payload), "the first MAC again");
    return;
  }
  const auto set_mac = [&](uint64_t mac) {
    std::string text;
    for (int shift = 40; shift >= 0; shift -= 8) {
      text += fmt::format("{}{:02x}", text.empty() ? "" : ":", mac >> shift & 0xff);
    }
    shell(fmt::format("ip neigh replace 10.77.0.50 lladdr {} nud permanent dev {}", text,
                      host.interface));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  set_mac(peer_mac);
  auto path = path_or_fail(*wire, gid_of(host.own_ipv4), gid_of("10.77.0.50"));
  check(path->resolved.load(), "a permanent entry resolves at once");
  send_one(*wire, *path, payload);
  host.meet();
  set_mac(0x020000000099);
  send_one(*wire, *path, payload);
  host.meet();
  host.meet();
  set_mac(peer_mac);
  send_one(*wire, *path, payload);
}

void the_kernel_stays_silent(const Host& host) {
  // Before anybody guards the port, the kernel answers: the counter works.
  if (host.number == 0) {
    const int probe = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(4791);
    inet_pton(AF_INET, host.peer_ipv4.c_str(), &to.sin_addr);
    sendto(probe, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    close(probe);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  host.meet();
  const uint64_t before = icmp_unreachables_sent();
  check(host.number == 0 || before > 0, "without a guard the kernel answers");
  auto wire = open_or_fail(host);
  host.meet();
  for (const bool ipv6 : {false, true}) {
    auto path = ipv6 ? path_or_fail(*wire, gid_of(host.own_ipv6), gid_of(host.peer_ipv6))
                     : path_or_fail(*wire, gid_of(host.own_ipv4), gid_of(host.peer_ipv4));
    check(wire->wait_resolved(*path, 3'000'000'000), "the peer is resolved");
    host.meet();
    for (unsigned i = 0; i < 20; ++i) send_one(*wire, *path, pattern(100, i));
    check(receive_one(*wire, 2000, pattern(100, 19)), "frames arrive");
    host.meet();
  }
  check(icmp_unreachables_sent() == before, "the guard keeps the kernel from answering");
}

void one_process_per_interface(const Host& host) {
  if (host.number == 1) return;
  const auto config = config_of(host);
  const auto self = describe_or_fail(config);
  auto wire = open_or_fail(host);
  const std::string holder = std::to_string(getpid());
  check(in_child([&] {
          auto second = datapath::open_ethdev_wire(config, self);
          check(!second.ok() && second.refusal().error == EBUSY, "the second is refused");
          check(second.refusal().why.find(holder) != std::string::npos,
                "and told who: " + second.refusal().why);
        }),
        "EBUSY names the holder");
  wire->close_gracefully(0);
  wire.reset();
  wire = open_or_fail(host);  // the same process may open again
  wire->close_gracefully(0);
  wire.reset();
  check(in_child([&] {
          auto forked = datapath::open_ethdev_wire(config, self);
          check(!forked.ok() && forked.refusal().error == EIO, "DPDK cannot start twice");
          check(forked.refusal().why.find("fork") != std::string::npos, forked.refusal().why);
        }),
        "a forked child is told why");
}

void refusals_say_why(const Host& host) {
  if (host.number == 1) return;
  auto config = config_of(host);
  const auto self = describe_or_fail(config);
  check(in_child([&] {
          check(setgid(65534) == 0 && setuid(65534) == 0, "becoming nobody");
          check(datapath::describe_netdev(config).ok(), "describing needs no rights");
          auto wire = datapath::open_ethdev_wire(config, self);
          check(!wire.ok() && wire.refusal().error == EPERM, "opening does");
          check(wire.refusal().why.find("CAP_NET_RAW") != std::string::npos, wire.refusal().why);
        }),
        "EPERM names the capability");
  shell(fmt::format("ip link set {} down", host.interface));
  auto down = datapath::open_ethdev_wire(config, self);
  check(!down.ok() && down.refusal().error == ENETDOWN, "an interface that is down is refused");
  check(!describe_or_fail(config).link_up, "and described as down");
  config.netdev = "lo";
  auto loopback = datapath::describe_netdev(config);
  check(!loopback.ok() && loopback.refusal().error == EINVAL, "lo is not Ethernet");
  config.netdev = "nosuch0";
  auto missing = datapath::describe_netdev(config);
  check(!missing.ok() && missing.refusal().error == ENODEV, "a missing interface is refused");
  check(missing.refusal().why.find(host.interface) != std::string::npos,
        "and told which exist: " + missing.refusal().why);
}

uint64_t frames_sent_by(const std::string& interface) {
  uint64_t count = 0;
  std::ifstream(fmt::format("/sys/class/net/{}/statistics/tx_packets", interface)) >> count;
  return count;
}

void paths_that_lead_nowhere_are_refused(const Host& host) {
  if (host.number == 1) return;
  auto wire = open_or_fail(host);
  const auto refused = [&](const char* source, const char* destination, int error) {
    auto path = try_path(*wire, gid_of(source), gid_of(destination));
    check(!path.ok() && path.refusal().error == error,
          fmt::format("{} to {}: errno {}, not {}", source, destination, error,
                      path.ok() ? 0 : path.refusal().error));
  };
  const char* const ipv4 = host.own_ipv4.c_str();
  refused(ipv4, "192.0.2.1", ENETUNREACH);
  refused(ipv4, host.peer_ipv6.c_str(), EINVAL);
  refused(ipv4, "127.0.0.1", EHOSTUNREACH);
  refused(ipv4, "224.0.0.5", EINVAL);
  refused(host.own_ipv6.c_str(), "2001:db8::1", ENETUNREACH);
  shell(fmt::format("ip route add 192.0.2.0/24 via 10.77.0.2 dev {}", host.interface));
  auto path = path_or_fail(*wire, gid_of(ipv4), gid_of("192.0.2.1"));
  check(wire->wait_resolved(*path, 3'000'000'000), "a gateway is the next hop");
}

void frames_to_ourselves_stay_inside(const Host& host) {
  if (host.number == 1) return;
  auto wire = open_or_fail(host);
  auto path = path_or_fail(*wire, gid_of(host.own_ipv4), gid_of(host.own_ipv4));
  check(path->loopback && path->resolved.load(), "the path is known to be our own");
  const uint64_t before = frames_sent_by(host.interface);
  size_t accepted = 0;
  while (accepted < 10'000 && send_one(*wire, *path, pattern(64, 1))) ++accepted;
  check(accepted > 100 && accepted < 10'000, "a full queue parks the sender");
  size_t received = 0;
  receive_until(*wire, 2000, [&](const datapath::Frame&) { return ++received == accepted; });
  check(received == accepted, "everything comes back");
  check(frames_sent_by(host.interface) == before, "and nothing left by the interface");
  check(send_one(*wire, *path, pattern(64, 1)), "there is room again");
}

void a_sleeper_is_woken(const Host& host) {
  auto wire = open_or_fail(host);
  check(wire->has_doorbell(), "a packet port has a doorbell");
  const auto slept_ms = [&](int64_t timeout_ms) {
    const auto begin = std::chrono::steady_clock::now();
    wire->sleep(timeout_ms * 1'000'000);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  if (host.number == 0) {
    auto path = path_or_fail(*wire, gid_of(host.own_ipv4), gid_of(host.peer_ipv4));
    check(wire->wait_resolved(*path, 3'000'000'000), "the peer is resolved");
    host.meet();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    send_one(*wire, *path, pattern(64, 3));
    host.meet();
    host.meet();
    return;
  }
  host.meet();
  check(slept_ms(10'000) < 9'000, "a frame ends sleep");
  check(receive_one(*wire, 1000, pattern(64, 3)), "and is there");
  host.meet();
  check(slept_ms(50) >= 45, "without a frame sleep lasts its time");
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    wire->wake();
  });
  check(slept_ms(10'000) < 9'000, "wake ends sleep");
  waker.join();
  shell(fmt::format("ip link set {} down", host.interface));
  slept_ms(50);
  check(slept_ms(50) >= 45, "an interface that is down does not keep us awake");
  host.meet();
}

// Every thread but the first must block every signal and be named as ours.
void the_application_is_left_alone(const Host& host) {
  if (host.number == 1) return;
  cpu_set_t before;
  cpu_set_t after;
  sigset_t mask;
  sched_getaffinity(0, sizeof(before), &before);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_cur, 1000);
  setrlimit(RLIMIT_NOFILE, &files);
  std::set<int> descriptors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    descriptors.insert(std::stoi(entry.path().filename()));
  }
  auto wire = open_or_fail(host);
  sched_getaffinity(0, sizeof(after), &after);
  check(CPU_EQUAL(&before, &after), "its affinity is as before");
  rlimit files_after{};
  getrlimit(RLIMIT_NOFILE, &files_after);
  check(files_after.rlim_cur == files.rlim_cur, "its limit of open files is as before");
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  check(sigismember(&mask, SIGINT) == 0, "its signal mask is as before");
  size_t threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(getpid())) continue;
    ++threads;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:")) {
        check(line.starts_with("Name:\turoce-"), "a thread of ours has our name: " + line);
      }
      if (line.starts_with("SigBlk:")) {
        const uint64_t blocked = std::stoull(line.substr(8), nullptr, 16);
        // All but SIGKILL, SIGSTOP and the two that glibc keeps for itself (32 and 33).
        check((blocked | 0x0000000180040100) == ~uint64_t{0},
              "a thread of ours blocks every signal: " + line);
      }
    }
  }
  check(threads >= 2, "there are threads to look at");
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    const int flags = fcntl(fd, F_GETFD);
    if (descriptors.contains(fd) || flags < 0) continue;
    check((flags & FD_CLOEXEC) != 0,
          "closed in programs that it executes: " + entry.path().string());
  }
  for (const char* folder : {"/var/run/dpdk", "/tmp/dpdk"}) {
    const auto own = std::filesystem::path(folder) / fmt::format("uroce-{}", getpid());
    check(!std::filesystem::exists(own), "no runtime folder is left");
  }
}

}  // namespace
}  // namespace uroce::test

int main() {
  using namespace uroce::test;
  if (!can_make_hosts()) {
    fmt::print(stderr, "skipped: making network namespaces needs root\n");
    return 77;
  }
  struct Scenario {
    const char* name;
    void (*script)(const Host&);
  };
  const std::array scenarios = {
      Scenario{"frames cross in both directions", frames_cross_in_both_directions},
      Scenario{"a silent neighbour swallows frames", a_silent_neighbour_swallows_frames},
      Scenario{"a change of MAC is followed", a_change_of_mac_is_followed},
      Scenario{"the kernel stays silent", the_kernel_stays_silent},
      Scenario{"one process per interface", one_process_per_interface},
      Scenario{"refusals say why", refusals_say_why},
      Scenario{"paths that lead nowhere are refused", paths_that_lead_nowhere_are_refused},
      Scenario{"frames to ourselves stay inside", frames_to_ourselves_stay_inside},
      Scenario{"a sleeper is woken", a_sleeper_is_woken},
      Scenario{"the application is left alone", the_application_is_left_alone},
  };
  int failures = 0;
  for (const Scenario& scenario : scenarios) {
    const bool good = run_on_two_hosts(4200, scenario.script);
    fmt::print("{}: {}\n", good ? "ok" : "FAILED", scenario.name);
    failures += good ? 0 : 1;
  }
  return failures == 0 ? 0 : 1;
}
