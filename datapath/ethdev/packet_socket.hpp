// The AF_PACKET socket inside a DPDK port: what the port's interface hides and Linux still offers.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "datapath/ethdev/interface.hpp"

namespace uroce::datapath {

// The packet sockets of this process, by inode.
std::set<uint64_t> open_packet_sockets();

// A socket that the driver opened and owns. DPDK has no way to wait for a frame without interrupts,
// to filter in the kernel or to learn of drops; the socket has all three.
class PacketSocket {
 public:
  // The one on `interface` that was not among `earlier`; nothing if the driver has none.
  static std::optional<PacketSocket> find(const Interface& interface,
                                          const std::set<uint64_t>& earlier);

  // Polls readable while a received frame waits. Owned by the driver.
  int fd() const { return fd_; }

  // Makes the kernel copy only UDP frames to port 4791 that others sent, and closes the socket in
  // programs that this process executes. Failure costs speed only.
  void keep_to_roce() const;

  // An interface that went down leaves an error, for which poll would return at once for ever.
  void clear_error() const;

  // Frames lost since the last call because the ring was full.
  uint64_t take_drops() const;

 private:
  explicit PacketSocket(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace uroce::datapath
