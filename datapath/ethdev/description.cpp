// Describes config.netdev as the device uroce0.
#include "datapath/ethdev/description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "datapath/ethdev/ethdev.hpp"

namespace uroce::datapath {
namespace {

// IPv6 40, UDP 8, BTH 12, XRCETH 4, RETH 16, ImmDt 4, ICRC 4: the most that stands around a full
// payload.
constexpr uint32_t kMaxOverhead = 88;

bool is_link_local(const Gid& gid) {
  return gid.bytes[0] == 0xfe && (gid.bytes[1] & 0xc0) == 0x80;  // fe80::/10
}

Gid link_local_of(const MacAddress& mac) {
  Gid gid;
  gid.bytes[0] = 0xfe;
  gid.bytes[1] = 0x80;
  const uint64_t guid = guid_of(mac);
  for (size_t i = 0; i < 8; ++i) gid.bytes[8 + i] = static_cast<uint8_t>(guid >> (56 - 8 * i));
  return gid;
}

}  // namespace

uint64_t guid_of(const MacAddress& mac) {
  const std::array<uint8_t, 8> eui64 = {
      static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  uint64_t guid = 0;
  for (const uint8_t byte : eui64) guid = guid << 8 | byte;
  return guid;
}

std::optional<Mtu> path_mtu_that_fits(uint32_t interface_mtu) {
  std::optional<Mtu> best;
  for (const Mtu mtu : {Mtu::k256, Mtu::k512, Mtu::k1024, Mtu::k2048, Mtu::k4096}) {
    if (bytes_of(mtu) + kMaxOverhead <= interface_mtu) best = mtu;
  }
  return best;
}

std::vector<GidEntry> gid_table(const Interface& interface) {
  std::vector<Gid> rest = interface.addresses;
  // Takes the first address that `matches` out of the rest; `otherwise` when there is none.
  const auto take = [&rest](auto matches, const Gid& otherwise) {
    const auto found = std::find_if(rest.begin(), rest.end(), matches);
    if (found == rest.end()) return otherwise;
    const Gid gid = *found;
    rest.erase(found);
    return gid;
  };
  std::vector<GidEntry> table(kGidTableLength);
  table[0].gid = take(is_link_local, link_local_of(interface.mac));
  table[1].gid = take([](const Gid& gid) { return gid.is_ipv4_mapped(); }, Gid{});
  for (size_t i = 0; i < rest.size() && i + 2 < table.size(); ++i) table[i + 2].gid = rest[i];
  for (GidEntry& entry : table) {
    if (!entry.gid.is_zero()) entry.netdev = interface.name;
  }
  return table;
}

Result<std::vector<DeviceDescription>> describe_netdev(const Config& config) {
  auto found = query_interface(config.netdev);
  if (!found) return found.refusal();
  const Interface& interface = *found;
  if (!interface.ethernet) {
    return Refusal{EINVAL,
                   fmt::format("{} is not an Ethernet interface; within one host the fabric "
                               "(no UROCE_NETDEV) needs none",
                               interface.name)};
  }
  const std::optional<Mtu> fits = path_mtu_that_fits(interface.mtu);
  if (!fits) {
    return Refusal{EINVAL,
                   fmt::format("{} has MTU {}, too small for the least path MTU of 256 bytes",
                               interface.name, interface.mtu)};
  }
  DeviceDescription device;
  device.name = "uroce0";
  device.node_guid = guid_of(interface.mac);
  device.system_guid = device.node_guid;
  device.max_mtu = std::min(*fits, config.mtu);
  device.active_mtu = device.max_mtu;
  device.wire = WireKind::kNetdev;
  device.netdev = interface.name;
  device.link_up = interface.running;
  device.gids = gid_table(interface);
  return std::vector<DeviceDescription>{std::move(device)};
}

}  // namespace uroce::datapath
