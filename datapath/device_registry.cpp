// The devices that this process has open: one object each, shared by all contexts, gone in forked
// children.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "datapath/device_impl.hpp"
#include "datapath/fork_guard.hpp"

namespace uroce::datapath {

namespace {

// Never destroyed: contexts may outlive static destructors.
struct Registry {
  std::mutex mutex;
  std::condition_variable closed;
  std::map<std::string, DeviceImpl*, std::less<>> open;  // owned by `shared`'s deleters
  std::map<std::string, std::weak_ptr<OpenDevice>, std::less<>> shared;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

void close_device(const std::string& name, DeviceImpl* device) {
  Registry& all = registry();
  if (!device->alive()) return;  // inherited through a fork: leaked
  delete device;
  const std::lock_guard hold(all.mutex);
  all.open.erase(name);
  all.shared.erase(name);
  all.closed.notify_all();
}

void flush_all_at_exit() {
  Registry& all = registry();
  const std::lock_guard hold(all.mutex);
  for (auto& [name, device] : all.open) device->flush_at_exit();
}

void before_fork() {
  registry().mutex.lock();
}
void after_fork_in_parent() {
  registry().mutex.unlock();
}

// The maps are leaked with what they name: only descriptors are given back.
void after_fork_in_child() {
  Registry& all = registry();
  for (auto& [name, device] : all.open) device->abandon_in_child();
  all.open.clear();
  new std::map(std::move(all.shared));
  all.shared.clear();
  all.mutex.unlock();
}

void install_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    ForkGuard::install(before_fork, after_fork_in_parent, after_fork_in_child);
    std::atexit(flush_all_at_exit);
  });
}

}  // namespace

Result<std::shared_ptr<OpenDevice>> OpenDevice::open(const Config& config, std::string_view name) {
  install_once();
  auto described = describe_devices(config);
  if (!described) return described.refusal();
  const auto found = std::find_if(described->begin(), described->end(),
                                  [&](const auto& device) { return device.name == name; });
  if (found == described->end()) return Refusal{ENODEV, fmt::format("no device {}", name)};
  Registry& all = registry();
  std::unique_lock hold(all.mutex);
  if (const auto known = all.shared.find(name); known != all.shared.end()) {
    if (auto device = known->second.lock()) return device;
    // Its last context is just closing; the port or slot is free when that is done.
    all.closed.wait(hold, [&] { return all.shared.find(name) == all.shared.end(); });
  }
  auto created = DeviceImpl::create(config, *found);
  if (!created) return created.refusal();
  DeviceImpl* const device = created->release();
  std::shared_ptr<OpenDevice> shared(device, [key = std::string(name)](OpenDevice* gone) {
    close_device(key, static_cast<DeviceImpl*>(gone));
  });
  all.open[std::string(name)] = device;
  all.shared[std::string(name)] = shared;
  return shared;
}

}  // namespace uroce::datapath
