// The devices of this process's configuration, as libibverbs lists them.
#pragma once

#include <infiniband/verbs.h>

#include <vector>

#include "datapath/device.hpp"
#include "provider/abi34.hpp"

namespace uroce::provider {

struct ListedDevice {
  abi34::Device verbs{};
  datapath::DeviceDescription description;
};

extern const abi34::DeviceOps kDeviceOps;

// Read from the environment once, at the first call; if that was refused the default, and
// list_devices says so.
const datapath::Config& configuration();

// Every device, each with a reference that ibv_free_device_list drops. Brings the device directory
// up to date. One device has one address for the life of the process. Refusals: those of
// config_from_environment, describe_devices and publish_device_directory.
Result<std::vector<ibv_device*>> list_devices();

// True if `device` is one of the above.
bool owns(const ibv_device* device);

// What ibv_open_device returns for a device of ours.
ibv_context* open_device(ibv_device* device);

}  // namespace uroce::provider
