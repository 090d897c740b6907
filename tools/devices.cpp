// `uroce devices`: lists the devices that a program would see, and who holds them.
#include <arpa/inet.h>
#include <errno.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "datapath/device.hpp"
#include "datapath/fabric/run_directory.hpp"
#include "datapath/fabric/slot_table.hpp"
#include "tools/command.hpp"
#include "tools/settings.hpp"

namespace uroce::tools {
namespace {

using datapath::DeviceDescription;
using datapath::SlotHolder;

struct DevicesOptions {
  SettingFlags settings;
  bool json = false;
};

std::string text_of(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.bytes.data(), text, sizeof text);
  return text;
}

// As ibv_devices prints it: 16 digits.
std::string text_of_guid(uint64_t guid) {
  return fmt::format("{:016x}", guid);
}

std::string wire_of(const datapath::Config& config) {
  return config.wire == datapath::WireKind::kFabric
             ? fmt::format("fabric '{}' in {}", config.fabric, config.fabric_directory())
             : fmt::format("interface {} through DPDK's AF_PACKET port", config.netdev);
}

// Nobody holds anything on a fabric that was never used.
Result<std::vector<SlotHolder>> holders_of(const datapath::Config& config) {
  if (config.wire != datapath::WireKind::kFabric) return std::vector<SlotHolder>{};
  const auto directory = datapath::RunDirectory::open_existing(config.fabric_directory());
  if (!directory) {
    if (directory.refusal().error == ENOENT) return std::vector<SlotHolder>{};
    return directory.refusal();
  }
  return datapath::list_held_slots(*directory);
}

std::string plain(const DeviceDescription& device, const std::string& wire,
                  const std::vector<SlotHolder>& holders) {
  std::string text =
      fmt::format("{}  {}  GUID {}  MTU {} (at most {})\n  wire    {}\n", device.name,
                  device.link_up ? "ACTIVE" : "DOWN", text_of_guid(device.node_guid),
                  bytes_of(device.active_mtu), bytes_of(device.max_mtu), wire);
  for (size_t i = 0; i < device.gids.size(); ++i) {
    const datapath::GidEntry& entry = device.gids[i];
    if (entry.gid.is_zero()) continue;
    text += fmt::format("  GID {:2}  {}  RoCE v2{}{}\n", i, text_of(entry.gid),
                        entry.netdev.empty() ? "" : "  on ", entry.netdev);
  }
  for (const SlotHolder& holder : holders) {
    if (holder.device != device.name) continue;
    text +=
        fmt::format("  slot {:3}  held by pid {} ({})\n", holder.slot, holder.pid, holder.command);
  }
  return text;
}

nlohmann::json as_json(const DeviceDescription& device, const std::vector<SlotHolder>& holders) {
  nlohmann::json gids = nlohmann::json::array();
  for (size_t i = 0; i < device.gids.size(); ++i) {
    const datapath::GidEntry& entry = device.gids[i];
    if (entry.gid.is_zero()) continue;
    gids.push_back(
        {{"index", i}, {"gid", text_of(entry.gid)}, {"type", "RoCE v2"}, {"netdev", entry.netdev}});
  }
  nlohmann::json held = nlohmann::json::array();
  for (const SlotHolder& holder : holders) {
    if (holder.device != device.name) continue;
    held.push_back({{"slot", holder.slot}, {"pid", holder.pid}, {"command", holder.command}});
  }
  return {{"name", device.name},
          {"state", device.link_up ? "ACTIVE" : "DOWN"},
          {"node_guid", text_of_guid(device.node_guid)},
          {"active_mtu", bytes_of(device.active_mtu)},
          {"max_mtu", bytes_of(device.max_mtu)},
          {"gids", gids},
          {"holders", held}};
}

// Programs may call their devices otherwise (UROCE_DEVICES): they hold slots of this fabric too.
std::string plain_others(const std::vector<DeviceDescription>& devices,
                         const std::vector<SlotHolder>& holders) {
  std::string text;
  for (const SlotHolder& holder : holders) {
    const auto has_name = [&](const DeviceDescription& d) { return d.name == holder.device; };
    if (std::ranges::any_of(devices, has_name)) continue;
    text += fmt::format("slot {:3}  device {}, held by pid {} ({})\n", holder.slot, holder.device,
                        holder.pid, holder.command);
  }
  return text;
}

int list_devices(const DevicesOptions& options) {
  const Result<datapath::Config> config = options.settings.config();
  if (!config) {
    spdlog::error("{}", config.refusal().why);
    return kExitUsage;
  }
  const auto devices = datapath::describe_devices(*config);
  if (!devices) {
    spdlog::error("{}", devices.refusal().why);
    return kExitUsage;
  }
  const auto holders = holders_of(*config);
  if (!holders) {
    spdlog::error("{}", holders.refusal().why);
    return kExitUsage;
  }
  const std::string wire = wire_of(*config);
  std::string text;
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const DeviceDescription& device : *devices) list.push_back(as_json(device, *holders));
    text = nlohmann::json{{"wire", wire}, {"devices", list}}.dump(2) + "\n";
  } else {
    for (const DeviceDescription& device : *devices) text += plain(device, wire, *holders);
    text += plain_others(*devices, *holders);
  }
  return fwrite(text.data(), 1, text.size(), stdout) == text.size() ? kExitOk : kExitFailure;
}

}  // namespace

Command make_devices_command(CLI::App& parent) {
  CLI::App* const app =
      parent.add_subcommand("devices", "List the devices, and the processes that hold them");
  app->formatter(std::make_shared<UsageFormatter>("uroce devices [FLAGS]"));
  auto options = std::make_shared<DevicesOptions>();
  options->settings.add_device_flags(*app);
  app->add_flag("--json", options->json, "Print JSON, for programs");
  app->footer(
      "Shows what `uroce run` with the same flags would offer: state, GUID, MTU, GIDs, the wire,\n"
      "and on a fabric the processes that hold slots.");
  return {app, [options] { return list_devices(*options); }};
}

}  // namespace uroce::tools
