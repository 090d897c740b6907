// GUIDs, GIDs and MAC addresses of fabric devices: stable hashes of who owns them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "datapath/config.hpp"
#include "datapath/device.hpp"
#include "transport/types.hpp"

namespace uroce::datapath {

// The devices of a fabric, in the configuration's order. GUIDs are unique per host, user, fabric
// and device. GID 0 is fe80::/64 with the GUID; GID 1 a v4 address in 127.0.0.0/8, so that the same
// address works for a TCP side channel without configuration (a /24 per user and fabric, the host
// part is the device's number from 1); GID 2 a unique local v6 address.
Result<std::vector<DeviceDescription>> describe_fabric_devices(const Config& config);

// True if the address can be one of this fabric's, whichever device's.
bool is_fabric_address(const Config& config, const Gid& gid);
// The networks that is_fabric_address accepts, for messages.
std::string describe_fabric_networks(const Config& config);

// A locally administered unicast MAC address that stands for an IP address.
std::array<uint8_t, 6> mac_of(const Gid& gid);

}  // namespace uroce::datapath
