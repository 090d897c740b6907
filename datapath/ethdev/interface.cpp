// Reads one interface and its addresses by libnl-route.
#include "datapath/ethdev/interface.hpp"

#include <fmt/format.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace uroce::datapath {
namespace {

template <auto kFree>
struct FreeWith {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Socket = std::unique_ptr<nl_sock, FreeWith<nl_socket_free>>;
using Cache = std::unique_ptr<nl_cache, FreeWith<nl_cache_free>>;
using Link = std::unique_ptr<rtnl_link, FreeWith<rtnl_link_put>>;

Result<Socket> connect_netlink() {
  Socket socket(nl_socket_alloc());
  if (!socket) return Refusal{ENOMEM, "no memory for a netlink socket"};
  if (const int error = nl_connect(socket.get(), NETLINK_ROUTE); error < 0) {
    return Refusal{EIO, fmt::format("netlink socket: {}", nl_geterror(error))};
  }
  return socket;
}

std::string existing_interfaces(nl_sock* socket) {
  nl_cache* raw = nullptr;
  if (rtnl_link_alloc_cache(socket, AF_UNSPEC, &raw) < 0) return "unknown";
  const Cache cache(raw);
  std::string names;
  for (nl_object* object = nl_cache_get_first(raw); object != nullptr;
       object = nl_cache_get_next(object)) {
    auto* link = reinterpret_cast<rtnl_link*>(object);
    if (rtnl_link_get_arptype(link) != ARPHRD_ETHER) continue;
    if (!names.empty()) names += ", ";
    names += rtnl_link_get_name(link);
  }
  return names.empty() ? "none" : names;
}

// The address in GID form; zero when it is neither IPv4 nor IPv6.
Gid gid_of(nl_addr* address) {
  if (address == nullptr) return {};
  const auto* bytes = static_cast<const uint8_t*>(nl_addr_get_binary_addr(address));
  if (nl_addr_get_family(address) == AF_INET && nl_addr_get_len(address) == 4) {
    return Gid::from_ipv4(bytes[0], bytes[1], bytes[2], bytes[3]);
  }
  Gid gid;
  if (nl_addr_get_family(address) == AF_INET6 && nl_addr_get_len(address) == gid.bytes.size()) {
    std::memcpy(gid.bytes.data(), bytes, gid.bytes.size());
  }
  return gid;
}

Result<std::vector<Gid>> read_addresses(nl_sock* socket, int index) {
  nl_cache* raw = nullptr;
  if (const int error = rtnl_addr_alloc_cache(socket, &raw); error < 0) {
    return Refusal{EIO, fmt::format("listing addresses: {}", nl_geterror(error))};
  }
  const Cache cache(raw);
  std::vector<Gid> addresses;
  for (nl_object* object = nl_cache_get_first(raw); object != nullptr;
       object = nl_cache_get_next(object)) {
    auto* address = reinterpret_cast<rtnl_addr*>(object);
    if (rtnl_addr_get_ifindex(address) != index) continue;
    if ((rtnl_addr_get_flags(address) & IFA_F_DADFAILED) != 0) continue;
    const Gid gid = gid_of(rtnl_addr_get_local(address));
    const bool known = std::find(addresses.begin(), addresses.end(), gid) != addresses.end();
    if (!gid.is_zero() && !known) addresses.push_back(gid);
  }
  return addresses;
}

}  // namespace

Result<Interface> query_interface(const std::string& name) {
  auto socket = connect_netlink();
  if (!socket) return socket.refusal();
  rtnl_link* raw = nullptr;
  if (rtnl_link_get_kernel(socket->get(), 0, name.c_str(), &raw) < 0) {
    return Refusal{ENODEV, fmt::format("no interface {}; there are: {}", name,
                                       existing_interfaces(socket->get()))};
  }
  const Link link(raw);
  Interface out;
  out.name = name;
  out.index = rtnl_link_get_ifindex(raw);
  out.mtu = rtnl_link_get_mtu(raw);
  out.ethernet = rtnl_link_get_arptype(raw) == ARPHRD_ETHER;
  const unsigned flags = rtnl_link_get_flags(raw);
  out.up = (flags & IFF_UP) != 0;
  out.running = out.up && (flags & IFF_RUNNING) != 0;
  nl_addr* mac = rtnl_link_get_addr(raw);
  if (mac != nullptr && nl_addr_get_len(mac) == out.mac.size()) {
    std::memcpy(out.mac.data(), nl_addr_get_binary_addr(mac), out.mac.size());
  }
  auto addresses = read_addresses(socket->get(), out.index);
  if (!addresses) return addresses.refusal();
  out.addresses = std::move(*addresses);
  return out;
}

}  // namespace uroce::datapath
