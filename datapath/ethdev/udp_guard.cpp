// Binds the guard sockets.
#include "datapath/ethdev/udp_guard.hpp"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "datapath/frame.hpp"
#include "datapath/log.hpp"

namespace uroce::datapath {
namespace {

FileDescriptor bind_guard(int family, const std::string& interface_name) {
  FileDescriptor guard(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!guard) return guard;  // a kernel without this family sends no ICMP in it either
  sock_filter drop_all = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program = {1, &drop_all};
  const int on = 1;
  sockaddr_storage any{};
  socklen_t length = sizeof(sockaddr_in);
  any.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET6) {
    auto& address = reinterpret_cast<sockaddr_in6&>(any);
    address.sin6_port = htons(kRoceUdpPort);
    length = sizeof(sockaddr_in6);
    setsockopt(guard.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  } else {
    reinterpret_cast<sockaddr_in&>(any).sin_port = htons(kRoceUdpPort);
  }
  // Bound to the interface, so that processes on other interfaces can bind theirs.
  setsockopt(guard.get(), SOL_SOCKET, SO_BINDTODEVICE, interface_name.c_str(),
             static_cast<socklen_t>(interface_name.size()));
  setsockopt(guard.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
  if (bind(guard.get(), reinterpret_cast<const sockaddr*>(&any), length) != 0) {
    log(LogLevel::kInfo, "UDP port {} of {} is not ours ({}): its owner sees our packets too",
        kRoceUdpPort, interface_name, std::strerror(errno));
    guard.reset();
  }
  return guard;
}

}  // namespace

UdpGuard::UdpGuard(const std::string& interface_name)
    : ipv4_(bind_guard(AF_INET, interface_name)), ipv6_(bind_guard(AF_INET6, interface_name)) {}

void UdpGuard::reset() {
  ipv4_.reset();
  ipv6_.reset();
}

}  // namespace uroce::datapath
