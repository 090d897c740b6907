// The ethdev wire in direct mode: a Linux interface through a DPDK port owned by this process.
#pragma once

#include <memory>
#include <vector>

#include "datapath/config.hpp"
#include "datapath/device.hpp"
#include "datapath/wire.hpp"
#include "transport/result.hpp"

namespace uroce::datapath {

// The one device, uroce0, on config.netdev. Needs no rights and starts no DPDK. Refusals: ENODEV
// (lists the interfaces that exist), EINVAL (not Ethernet, or its MTU carries no InfiniBand MTU).
Result<std::vector<DeviceDescription>> describe_netdev(const Config& config);

// Opens the port of `self`, whose GIDs are the addresses that this process answers for. Starts DPDK
// once per process (~130 ms). Refusals: EPERM (CAP_NET_RAW), EBUSY (names the holder's pid),
// ENODEV, ENETDOWN, EIO (a forked child of a process that started DPDK, or DPDK's own words).
Result<std::unique_ptr<Wire>> open_ethdev_wire(const Config& config, const DeviceDescription& self);

}  // namespace uroce::datapath
