// Derives fabric addresses from host, user, fabric and device.
#include "datapath/fabric/fabric_addresses.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include "datapath/fabric/owned_fd.hpp"

namespace uroce::datapath {

namespace {

// FNV-1a over the text, then the finaliser of MurmurHash3, so that short names spread over all
// bits. Stable for ever: addresses must not change between runs and versions.
uint64_t stable_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 33);
}

// The machine id where there is one, and the host name, which tells containers apart.
std::string host_identity() {
  char id[64] = {};
  const OwnedFd fd(open("/etc/machine-id", O_RDONLY | O_CLOEXEC));
  ssize_t bytes = fd ? read(fd.get(), id, sizeof id) : 0;
  if (bytes < 0) bytes = 0;
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, sizeof name - 1);
  return fmt::format("{}/{}", std::string_view(id, static_cast<size_t>(bytes)), name);
}

// The same for all processes of a user on a fabric, whatever container they are in.
uint64_t fabric_hash(const Config& config) {
  return stable_hash(fmt::format("fabric/{}/{}", geteuid(), config.fabric));
}

void put_be(uint64_t value, size_t bytes, uint8_t* out) {
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(value >> 8 * (bytes - 1 - i));
}

// 127.a.b.host: `a` is 1..254, which keeps clear of 127.0.0.1, 127.0.1.1 and the broadcast address.
Gid v4_gid(uint64_t hash, size_t host) {
  return Gid::from_ipv4(127, static_cast<uint8_t>(1 + hash % 254), static_cast<uint8_t>(hash >> 16),
                        static_cast<uint8_t>(host));
}

// fe80::/64 and the interface identifier, which is the GUID with its universal bit inverted.
Gid link_local_gid(uint64_t guid) {
  Gid gid;
  gid.bytes[0] = 0xfe;
  gid.bytes[1] = 0x80;
  put_be(guid ^ uint64_t{2} << 56, 8, &gid.bytes[8]);
  return gid;
}

// fd + 40 bits of hash (RFC 4193), subnet 0, interface identifier.
Gid unique_local_gid(uint64_t hash, uint64_t guid) {
  Gid gid = link_local_gid(guid);
  gid.bytes[0] = 0xfd;
  put_be(hash >> 24, 5, &gid.bytes[1]);
  return gid;
}

}  // namespace

Result<std::vector<DeviceDescription>> describe_fabric_devices(const Config& config) {
  constexpr size_t kMaxHosts = 254;
  if (config.devices.empty() || config.devices.size() > kMaxHosts) {
    return Refusal{EINVAL, fmt::format("a fabric has 1 to {} devices, not {}", kMaxHosts,
                                       config.devices.size())};
  }
  const uint64_t network = fabric_hash(config);
  const std::string host = host_identity();
  // EUI-64 with the locally administered bit; the group bit stays clear.
  auto guid_of = [&](std::string_view name) {
    const uint64_t hash =
        stable_hash(fmt::format("guid/{}/{}/{}/{}", host, geteuid(), config.fabric, name));
    return (hash & 0x00ffffffffffffff) | uint64_t{2} << 56;
  };
  std::vector<DeviceDescription> devices;
  for (size_t i = 0; i < config.devices.size(); ++i) {
    DeviceDescription device;
    device.name = config.devices[i];
    device.node_guid = guid_of(device.name);
    device.system_guid = guid_of("");
    device.max_mtu = config.mtu;
    device.active_mtu = config.mtu;
    device.wire = WireKind::kFabric;
    device.netdev = "lo";
    device.gids.resize(kGidTableLength);
    device.gids[0] = {link_local_gid(device.node_guid), "lo"};
    device.gids[1] = {v4_gid(network, i + 1), "lo"};
    device.gids[2] = {unique_local_gid(network, device.node_guid), "lo"};
    devices.push_back(std::move(device));
  }
  return devices;
}

bool is_fabric_address(const Config& config, const Gid& gid) {
  const uint64_t network = fabric_hash(config);
  auto same_prefix = [&gid](const Gid& other, size_t bytes) {
    return std::equal(gid.bytes.begin(), gid.bytes.begin() + bytes, other.bytes.begin());
  };
  return same_prefix(v4_gid(network, 0), 15) || same_prefix(link_local_gid(0), 8) ||
         same_prefix(unique_local_gid(network, 0), 8);
}

std::string describe_fabric_networks(const Config& config) {
  const uint64_t network = fabric_hash(config);
  const Gid v4 = v4_gid(network, 0);
  const Gid v6 = unique_local_gid(network, 0);
  return fmt::format("127.{}.{}.0/24, fe80::/64 and {:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}::/64",
                     v4.bytes[13], v4.bytes[14], v6.bytes[0], v6.bytes[1], v6.bytes[2], v6.bytes[3],
                     v6.bytes[4], v6.bytes[5]);
}

std::array<uint8_t, 6> mac_of(const Gid& gid) {
  const uint64_t hash =
      stable_hash({reinterpret_cast<const char*>(gid.bytes.data()), gid.bytes.size()});
  std::array<uint8_t, 6> mac{};
  put_be(hash, mac.size(), mac.data());
  mac[0] = 0x02;
  return mac;
}

}  // namespace uroce::datapath
