// Keeps the kernel from answering RoCE packets with ICMP port unreachable.
#pragma once

#include <string>

#include "datapath/ethdev/file_descriptor.hpp"

namespace uroce::datapath {

// Sockets bound to UDP 4791 of one interface, over IPv4 and IPv6, that are never read: the kernel
// gets its own copy of every frame, finds an owner for it and drops it at a filter. A port that is
// taken already (by rdma_rxe, say) is as good and no error.
class UdpGuard {
 public:
  explicit UdpGuard(const std::string& interface_name);
  void reset();

 private:
  FileDescriptor ipv4_;
  FileDescriptor ipv6_;
};

}  // namespace uroce::datapath
