// What the kernel knows about a Linux interface: asked by netlink, as of now.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/result.hpp"
#include "transport/types.hpp"

namespace uroce::datapath {

using MacAddress = std::array<uint8_t, 6>;

struct Interface {
  std::string name;
  int index = 0;
  uint32_t mtu = 0;  // bytes of IP packet
  MacAddress mac{};
  bool ethernet = false;  // ARPHRD_ETHER
  bool up = false;        // administratively
  bool running = false;   // operational: up, with a carrier
  // In the kernel's order, IPv4 as ::ffff:a.b.c.d; those that failed duplicate detection left out.
  std::vector<Gid> addresses;
};

// Refuses with ENODEV and one sentence that lists the Ethernet interfaces that exist.
Result<Interface> query_interface(const std::string& name);

}  // namespace uroce::datapath
