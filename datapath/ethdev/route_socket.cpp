// Encodes rtnetlink questions and decodes the answers.
#include "datapath/ethdev/route_socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

namespace uroce::datapath {
namespace {

constexpr size_t kAnswerBytes = 8192;  // one route or neighbour is a few hundred bytes

unsigned char family_of(const Gid& address) {
  return address.is_ipv4_mapped() ? AF_INET : AF_INET6;
}

// The address as netlink has it: 4 or 16 bytes.
std::span<const uint8_t> bytes_of_address(const Gid& address) {
  const std::span<const uint8_t> all(address.bytes);
  return address.is_ipv4_mapped() ? all.last(4) : all;
}

void put_address(nl_msg* message, int attribute, const Gid& address) {
  const auto bytes = bytes_of_address(address);
  nla_put(message, attribute, static_cast<int>(bytes.size()), bytes.data());
}

Gid gid_of_bytes(const void* data, size_t size) {
  Gid gid;
  if (size == 4) {
    const auto* v4 = static_cast<const uint8_t*>(data);
    return Gid::from_ipv4(v4[0], v4[1], v4[2], v4[3]);
  }
  if (size == gid.bytes.size()) std::memcpy(gid.bytes.data(), data, size);
  return gid;
}

Gid gid_of_attribute(const nlattr* attribute) {
  return gid_of_bytes(nla_data(attribute), static_cast<size_t>(nla_len(attribute)));
}

nl_msg* route_question(const Gid& destination, const Gid& source, int ifindex) {
  nl_msg* message = nlmsg_alloc_simple(RTM_GETROUTE, NLM_F_REQUEST);
  rtmsg header{};
  header.rtm_family = family_of(destination);
  header.rtm_dst_len = static_cast<unsigned char>(bytes_of_address(destination).size() * 8);
  header.rtm_src_len = static_cast<unsigned char>(bytes_of_address(source).size() * 8);
  nlmsg_append(message, &header, sizeof(header), NLMSG_ALIGNTO);
  put_address(message, RTA_DST, destination);
  put_address(message, RTA_SRC, source);
  if (ifindex != 0) nla_put_u32(message, RTA_OIF, static_cast<uint32_t>(ifindex));
  return message;
}

nl_msg* neighbour_message(int type, int flags, const Gid& address, int ifindex) {
  nl_msg* message = nlmsg_alloc_simple(type, flags);
  ndmsg header{};
  header.ndm_family = family_of(address);
  header.ndm_ifindex = ifindex;
  if (type == RTM_NEWNEIGH) header.ndm_flags = NTF_USE;
  nlmsg_append(message, &header, sizeof(header), NLMSG_ALIGNTO);
  put_address(message, NDA_DST, address);
  return message;
}

// The gateway of a route: RTA_GATEWAY, or RTA_VIA when it is of another family.
Gid gateway_in(const nlmsghdr* message) {
  if (const nlattr* gateway =
          nlmsg_find_attr(const_cast<nlmsghdr*>(message), sizeof(rtmsg), RTA_GATEWAY)) {
    return gid_of_attribute(gateway);
  }
  const nlattr* via = nlmsg_find_attr(const_cast<nlmsghdr*>(message), sizeof(rtmsg), RTA_VIA);
  constexpr int kViaHeader = 2;  // rtvia: family, then the address
  if (via == nullptr || nla_len(via) <= kViaHeader) return {};
  return gid_of_bytes(static_cast<const uint8_t*>(nla_data(via)) + kViaHeader,
                      static_cast<size_t>(nla_len(via) - kViaHeader));
}

}  // namespace

void FreeNetlinkSocket::operator()(nl_sock* socket) const {
  nl_socket_free(socket);
}

Result<RouteSocket> RouteSocket::open() {
  std::unique_ptr<nl_sock, FreeNetlinkSocket> socket(nl_socket_alloc());
  if (!socket) return Refusal{ENOMEM, "no memory for a netlink socket"};
  if (const int error = nl_connect(socket.get(), NETLINK_ROUTE); error < 0) {
    return Refusal{EIO, fmt::format("netlink socket: {}", nl_geterror(error))};
  }
  return RouteSocket(std::move(socket));
}

RouteSocket::RouteSocket(std::unique_ptr<nl_sock, FreeNetlinkSocket> socket)
    : socket_(std::move(socket)) {}

int RouteSocket::ask(nl_msg* message) {
  nlmsghdr* const header = nlmsg_hdr(message);
  header->nlmsg_seq = ++sequence_;
  const int fd = nl_socket_get_fd(socket_.get());
  const ssize_t sent = send(fd, header, header->nlmsg_len, 0);
  const int send_error = errno;
  nlmsg_free(message);
  if (sent < 0) return send_error;
  // The kernel answers before send returns; answers to questions that were cut short are skipped.
  for (;;) {
    answer_.resize(kAnswerBytes);
    const ssize_t size = recv(fd, answer_.data(), answer_.size(), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno;
    if (!nlmsg_ok(answer(), static_cast<int>(size))) return EPROTO;
    if (answer()->nlmsg_seq == sequence_) break;
  }
  if (answer()->nlmsg_type != NLMSG_ERROR) return 0;
  return -static_cast<const nlmsgerr*>(nlmsg_data(answer()))->error;
}

const nlmsghdr* RouteSocket::answer() const {
  return reinterpret_cast<const nlmsghdr*>(answer_.data());
}

Result<Gid> RouteSocket::next_hop(const Gid& destination, const Gid& source, int ifindex) {
  // Asked with an interface, the kernel takes what it has no IPv4 route for to be on link; so it is
  // first asked without. Link-local IPv6 destinations mean nothing without their interface.
  if (destination.is_ipv4_mapped()) {
    if (auto routed = find_route(destination, source, 0); !routed) return routed.refusal();
  }
  return find_route(destination, source, ifindex);
}

Result<Gid> RouteSocket::find_route(const Gid& destination, const Gid& source, int ifindex) {
  const auto refuse = [&](int error) {
    return Refusal{error, fmt::format("no route from {} to {}: {}", to_text(source),
                                      to_text(destination), std::strerror(error))};
  };
  if (const int error = ask(route_question(destination, source, ifindex)); error != 0) {
    return refuse(error);
  }
  switch (static_cast<const rtmsg*>(nlmsg_data(answer()))->rtm_type) {
    case RTN_UNICAST:
      break;
    case RTN_LOCAL:
      return Refusal{EHOSTUNREACH,
                     fmt::format("{} is an address of this host, but not of the device",
                                 to_text(destination))};
    case RTN_MULTICAST:
    case RTN_BROADCAST:
    case RTN_ANYCAST:
      return Refusal{EINVAL, fmt::format("{} is not a unicast address", to_text(destination))};
    default:
      return refuse(ENETUNREACH);
  }
  const Gid gateway = gateway_in(answer());
  return gateway.is_zero() ? destination : gateway;
}

std::optional<Neighbour> RouteSocket::neighbour(const Gid& address, int ifindex) {
  if (ask(neighbour_message(RTM_GETNEIGH, NLM_F_REQUEST, address, ifindex)) != 0) return {};
  return decode_neighbour(answer());
}

int RouteSocket::use_neighbour(const Gid& address, int ifindex) {
  return ask(
      neighbour_message(RTM_NEWNEIGH, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, address, ifindex));
}

void RouteSocket::abandon_in_child() {
  close(nl_socket_get_fd(socket_.get()));
}

std::optional<Neighbour> decode_neighbour(const nlmsghdr* message) {
  if (message->nlmsg_type != RTM_NEWNEIGH && message->nlmsg_type != RTM_DELNEIGH) return {};
  if (nlmsg_datalen(message) < static_cast<int>(sizeof(ndmsg))) return {};
  const auto* header = static_cast<const ndmsg*>(nlmsg_data(message));
  auto* attributes = const_cast<nlmsghdr*>(message);
  const nlattr* address = nlmsg_find_attr(attributes, sizeof(ndmsg), NDA_DST);
  if (address == nullptr) return {};
  Neighbour out;
  out.address = gid_of_attribute(address);
  out.ifindex = header->ndm_ifindex;
  constexpr unsigned kUsable =
      NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
  const nlattr* mac = nlmsg_find_attr(attributes, sizeof(ndmsg), NDA_LLADDR);
  const bool usable = message->nlmsg_type == RTM_NEWNEIGH && (header->ndm_state & kUsable) != 0;
  if (usable && mac != nullptr && nla_len(mac) == static_cast<int>(sizeof(MacAddress))) {
    out.mac.emplace();
    std::memcpy(out.mac->data(), nla_data(mac), out.mac->size());
  }
  out.stale = out.mac && (header->ndm_state & NUD_STALE) != 0;
  out.failed = message->nlmsg_type == RTM_NEWNEIGH && (header->ndm_state & NUD_FAILED) != 0;
  return out;
}

std::string to_text(const Gid& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(family_of(address), bytes_of_address(address).data(), text, sizeof(text));
  return text;
}

}  // namespace uroce::datapath
