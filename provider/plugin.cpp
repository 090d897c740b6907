// The plug-in's two doors: registration with libibverbs, and the table that the preload asks for.
#include <errno.h>

#include <algorithm>

#include "datapath/log.hpp"
#include "provider/devices.hpp"
#include "provider/engine_table.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {
namespace {

// Exceptions end here: callers are C.
int list_for_preload(ibv_device** out) try {
  const auto devices = list_devices();
  if (!devices) {
    datapath::log(datapath::LogLevel::kError, "no devices: {}", devices.refusal().why);
    errno = devices.refusal().error;
    return -1;
  }
  const auto count = std::min<size_t>(devices->size(), kMaxListedDevices);
  std::copy_n(devices->begin(), count, out);
  return static_cast<int>(count);
} catch (const std::exception& error) {
  datapath::log(datapath::LogLevel::kError, "no devices: {}", error.what());
  errno = ENOMEM;
  return -1;
}

__attribute__((constructor)) void register_with_libibverbs() {
  abi34::verbs_register_driver_34(&kDeviceOps);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const EngineTable uroce_engine = {
    kEngineTableVersion, list_for_preload,    owns,
    open_device,         create_comp_channel, destroy_comp_channel,
};

}  // namespace uroce::provider
