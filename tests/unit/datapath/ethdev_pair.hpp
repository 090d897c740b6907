// Two hosts on one machine: processes in network namespaces of their own, joined by a veth pair.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

namespace uroce::test {

// One of the two, within its own process. The namespaces have no names: they and the interfaces
// vanish with the processes, however these end.
struct Host {
  int number = 0;         // 0 or 1
  std::string interface;  // "veth0" or "veth1"
  std::string own_ipv4;   // 10.77.0.1 or .2
  std::string own_ipv6;   // fd77::1 or ::2
  std::string peer_ipv4;
  std::string peer_ipv6;
  int to_peer = -1;

  // Waits for the other host to reach its own call. Ends this process if the other is gone.
  void meet() const;
  // Like meet; returns the other's word.
  uint64_t exchange(uint64_t word) const;
};

// False where namespaces cannot be made: no root, or a sandbox that forbids them.
bool can_make_hosts();

// Runs `script` in both hosts, on interfaces of that MTU. True if both returned; a failed check or
// a signal makes it false, and a host that hangs is killed after 60 s.
bool run_on_two_hosts(int mtu, const std::function<void(const Host&)>& script);

// Runs a shell command; ends the process if it fails.
void shell(const std::string& command);

// Ends this host's process with a message unless `holds`.
inline void check(bool holds, const std::string& what) {
  if (holds) return;
  fmt::print(stderr, "FAILED: {}\n", what);
  std::_Exit(1);
}

}  // namespace uroce::test
