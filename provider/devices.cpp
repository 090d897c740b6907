// Lists and opens devices that no kernel knows of.
#include "provider/devices.hpp"

#include <stdlib.h>
#include <string.h>

#include <map>
#include <mutex>
#include <new>

#include "datapath/log.hpp"
#include "provider/device_directory.hpp"
#include "provider/refusal.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {
namespace {

using datapath::DeviceDescription;

// Never destroyed: applications hold devices until they exit.
struct Registry {
  std::mutex mutex;
  std::map<std::string, ListedDevice*> devices;
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

const Result<datapath::Config>& configuration_or_refusal() {
  static const Result<datapath::Config>& instance = [&]() -> const Result<datapath::Config>& {
    auto* const config = new Result<datapath::Config>(datapath::config_from_environment());
    if (config->ok()) datapath::log_to((*config)->log_level, (*config)->log_file);
    return *config;
  }();
  return instance;
}

template <size_t size>
void copy_name(char (&to)[size], const std::string& from) {
  const size_t length = from.copy(to, size - 1);
  to[length] = '\0';
}

// There is no character device; the name is what it would be called.
std::string character_device_name(const DeviceDescription& description) {
  return "uverbs-" + description.name;
}

// libibverbs frees it with free().
abi34::SysfsDevice* make_sysfs(const DeviceDescription& description, const std::string& directory) {
  void* const memory = calloc(1, sizeof(abi34::SysfsDevice));
  if (memory == nullptr) return nullptr;
  auto* const sysfs = static_cast<abi34::SysfsDevice*>(memory);
  sysfs->flags = abi34::kModaliasKnown | abi34::kNodeGuidKnown;
  copy_name(sysfs->sysfs_name, character_device_name(description));
  copy_name(sysfs->ibdev_name, description.name);
  copy_name(sysfs->ibdev_path, directory);
  sysfs->node_guid = description.node_guid;
  sysfs->node_type = IBV_NODE_CA;
  sysfs->ibdev_index = -1;
  sysfs->port_count = 1;
  return sysfs;
}

// Null: out of memory. The registry keeps the first reference, so the device never goes.
ListedDevice* make_device(const DeviceDescription& description, const std::string& directory) {
  abi34::SysfsDevice* const sysfs = make_sysfs(description, directory);
  if (sysfs == nullptr) return nullptr;
  auto* const device = new ListedDevice;
  device->verbs.ops = &kDeviceOps;
  device->verbs.references = 1;
  device->verbs.sysfs = sysfs;
  device->verbs.core_support = abi34::kOptionalAccessSupported;
  ibv_device& ibv = device->verbs.device;
  ibv.node_type = IBV_NODE_CA;
  ibv.transport_type = IBV_TRANSPORT_IB;
  copy_name(ibv.name, description.name);
  copy_name(ibv.dev_name, character_device_name(description));
  copy_name(ibv.dev_path, "/sys/class/infiniband_verbs/" + character_device_name(description));
  copy_name(ibv.ibdev_path, directory);
  return device;
}

// Kernel devices belong to other providers.
bool match_no_kernel_device(abi34::SysfsDevice*) {
  return false;
}

void uninit_device(abi34::Device* device) {
  delete reinterpret_cast<ListedDevice*>(device);
}

}  // namespace

const abi34::DeviceOps kDeviceOps = [] {
  abi34::DeviceOps ops{};
  ops.name = "uroce";
  ops.match_device = match_no_kernel_device;
  ops.alloc_context = alloc_context;
  ops.uninit_device = uninit_device;
  return ops;
}();

const datapath::Config& configuration() {
  static const datapath::Config fallback;
  const auto& config = configuration_or_refusal();
  return config ? config.value() : fallback;
}

Result<std::vector<ibv_device*>> list_devices() {
  const auto& config = configuration_or_refusal();
  if (!config) return config.refusal();
  auto descriptions = datapath::describe_devices(config.value());
  if (!descriptions) return descriptions.refusal();

  const std::lock_guard lock(registry().mutex);
  std::vector<ibv_device*> out;
  for (DeviceDescription& description : descriptions.value()) {
    const auto directory =
        publish_device_directory(config->fabric_directory() + "/devices", description);
    if (!directory) return directory.refusal();
    ListedDevice*& listed = registry().devices[description.name];
    if (listed == nullptr) listed = make_device(description, directory.value());
    if (listed == nullptr) return because(ENOMEM, "no memory for a device");
    listed->description = std::move(description);
    out.push_back(&listed->verbs.device);
  }
  for (ibv_device* device : out) ++reinterpret_cast<ListedDevice*>(device)->verbs.references;
  return out;
}

bool owns(const ibv_device* device) {
  return device != nullptr &&
         reinterpret_cast<const ListedDevice*>(device)->verbs.ops == &kDeviceOps;
}

// A listed device carries `sysfs`, because ibv_get_device_guid reads it; with `sysfs` libibverbs
// would open a character device. So it opens a clone without, and alloc_context binds the context
// to the listed device.
ibv_context* open_device(ibv_device* device) {
  abi34::Device clone{};
  clone.device = *device;
  clone.ops = &kDeviceOps;
  return abi34::verbs_open_device(&clone.device, reinterpret_cast<ListedDevice*>(device));
}

}  // namespace uroce::provider
