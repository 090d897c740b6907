// Addresses of fabric devices: distinct, stable, and where programs expect them.
#include <set>

#include "tests/unit/datapath/fabric_fixture.hpp"

namespace uroce::datapath {

namespace {

std::vector<DeviceDescription> devices_of(const std::string& fabric) {
  Config config;
  config.fabric = fabric;
  return describe_fabric_devices(config).value();
}

}  // namespace

TEST_CASE("a device has a link-local, a v4 and a unique local GID, in this order") {
  for (const DeviceDescription& device : devices_of("default")) {
    REQUIRE(device.gids.size() == kGidTableLength);
    CHECK(device.gids[0].gid.bytes[0] == 0xfe);
    CHECK(device.gids[0].gid.bytes[1] == 0x80);
    CHECK(device.gids[1].gid.is_ipv4_mapped());
    CHECK(device.gids[1].gid.bytes[12] == 127);
    CHECK(device.gids[1].gid.bytes[13] != 0);  // neither 127.0.0.1 nor 127.0.1.1
    CHECK(device.gids[1].gid.bytes[15] != 0);
    CHECK(device.gids[2].gid.bytes[0] == 0xfd);
    for (size_t i = 0; i < 3; ++i) CHECK(device.gids[i].netdev == "lo");
    for (size_t i = 3; i < kGidTableLength; ++i) CHECK(device.gids[i].gid.is_zero());
  }
}

TEST_CASE("addresses differ between devices and fabrics, and not between calls") {
  std::set<Gid> gids;
  std::set<uint64_t> guids;
  for (const char* fabric : {"default", "other", "third"}) {
    const auto devices = devices_of(fabric);
    REQUIRE(devices.size() == 2);
    for (const DeviceDescription& device : devices) {
      CHECK(guids.insert(device.node_guid).second);
      CHECK((device.node_guid >> 56 & 3) == 2);  // locally administered, not a group
      for (size_t i = 0; i < 3; ++i) CHECK(gids.insert(device.gids[i].gid).second);
    }
    CHECK(devices[0].system_guid == devices[1].system_guid);
    CHECK(devices[0].node_guid == devices_of(fabric)[0].node_guid);
  }
}

TEST_CASE("a fabric knows its own addresses") {
  Config config;
  const std::vector<DeviceDescription> devices = devices_of("default");
  for (const GidEntry& entry : devices[1].gids) {
    CHECK(is_fabric_address(config, entry.gid) == !entry.gid.is_zero());
  }
  CHECK_FALSE(is_fabric_address(config, devices_of("other")[0].gids[1].gid));
  CHECK_FALSE(is_fabric_address(config, devices_of("other")[0].gids[2].gid));
  CHECK_FALSE(is_fabric_address(config, Gid::from_ipv4(127, 0, 0, 1)));
}

TEST_CASE("a MAC address is unicast, locally administered and its IP address's own") {
  const auto devices = devices_of("default");
  const auto mac = mac_of(devices[0].gids[1].gid);
  CHECK((mac[0] & 3) == 2);
  CHECK(mac == mac_of(devices[0].gids[1].gid));
  CHECK(mac != mac_of(devices[1].gids[1].gid));
}

}  // namespace uroce::datapath
