// Questions to the kernel's routing and neighbour tables, over rtnetlink.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datapath/ethdev/interface.hpp"
#include "transport/result.hpp"
#include "transport/types.hpp"

struct nl_msg;
struct nl_sock;
struct nlmsghdr;

namespace uroce::datapath {

// What the kernel says of one neighbour.
struct Neighbour {
  Gid address;
  int ifindex = 0;
  std::optional<MacAddress> mac;  // set while the kernel would use it
  bool stale = false;             // usable, but unconfirmed for a while
  bool failed =
      false;  // does not answer; when neither failed nor usable: not known yet, or no more
};

struct FreeNetlinkSocket {
  void operator()(nl_sock* socket) const;
};

// One question at a time.
class RouteSocket {
 public:
  static Result<RouteSocket> open();

  // The next hop toward `destination` through the interface: the destination itself when on link.
  // Refusals: ENETUNREACH, EHOSTUNREACH, EACCES as the routing table says, EINVAL for a destination
  // that is not unicast.
  Result<Gid> next_hop(const Gid& destination, const Gid& source, int ifindex);

  // Nothing when the kernel has no entry.
  std::optional<Neighbour> neighbour(const Gid& address, int ifindex);

  // Makes the kernel resolve or confirm a neighbour, as a packet to it would. Returns an errno;
  // EPERM without CAP_NET_ADMIN.
  int use_neighbour(const Gid& address, int ifindex);

  // In a forked child: closes the descriptor, and nothing else.
  void abandon_in_child();

 private:
  explicit RouteSocket(std::unique_ptr<nl_sock, FreeNetlinkSocket> socket);
  Result<Gid> find_route(const Gid& destination, const Gid& source, int ifindex);
  // Sends `message` (freed here) and leaves the answer in answer_; errno of a refusal, else 0.
  int ask(nl_msg* message);
  const nlmsghdr* answer() const;

  std::unique_ptr<nl_sock, FreeNetlinkSocket> socket_;
  std::vector<uint8_t> answer_;
  uint32_t sequence_ = 0;
};

// Decodes an RTM_NEWNEIGH or RTM_DELNEIGH message; nothing for any other or one without an address.
std::optional<Neighbour> decode_neighbour(const nlmsghdr* message);

// "10.0.0.2" or "fe80::2".
std::string to_text(const Gid& address);

}  // namespace uroce::datapath
