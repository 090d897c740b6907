// The pure part of describing an interface as an RDMA device: GUID, GID table, path MTU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/device.hpp"
#include "datapath/ethdev/interface.hpp"

namespace uroce::datapath {

// EUI-64 of a MAC with the universal/local bit inverted, host order (RFC 4291 appendix A; the
// kernel's rdma_rxe makes its node GUID the same way).
uint64_t guid_of(const MacAddress& mac);

// The largest path MTU whose every packet fits an IP packet of `interface_mtu` bytes: 1024 at
// Ethernet's 1500, 4096 from 4184 on. Nothing below 344 bytes.
std::optional<Mtu> path_mtu_that_fits(uint32_t interface_mtu);

// kGidTableLength entries: 0 is link-local IPv6 (made from the MAC if the interface has none, as
// the kernel's default GID), 1 the first IPv4 address, then every other address in order. Empty
// indices are zero; addresses beyond the table are left out.
std::vector<GidEntry> gid_table(const Interface& interface);

}  // namespace uroce::datapath
