// Adds the configuration's flags to a verb, and reads the configuration from flags and environment.
#include "tools/settings.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <string_view>

namespace uroce::tools {

using datapath::Setting;

void SettingFlags::add(CLI::App& app, const std::string& flag, const std::string& variable,
                       const std::string& placeholder, const std::string& description) {
  Flag& entry = flags_[variable];
  entry.flag = flag;
  entry.variable = variable;
  entry.option = app.add_option(flag, entry.value, fmt::format("{} [${}]", description, variable));
  entry.option->type_name(placeholder);
}

void SettingFlags::add_device_flags(CLI::App& app) {
  add(app, "--fabric", "UROCE_FABRIC", "NAME",
      "Virtual fabric to join (default: default);\n"
      "programs meet on the fabric of one name");
  add(app, "--devices", "UROCE_DEVICES", "LIST",
      "Comma-separated device names\n"
      "(default: uroce0,uroce1; with --netdev: uroce0)");
  add(app, "--netdev", "UROCE_NETDEV", "IFACE",
      "Use this Linux interface, through DPDK's AF_PACKET port,\n"
      "instead of a fabric; needs root (CAP_NET_RAW)");
  add(app, "--mtu", "UROCE_MTU", "N",
      "Largest path MTU offered: 256, 512, 1024, 2048 or 4096\n"
      "(default: 4096; an interface lowers it to what fits)");
}

void SettingFlags::add_engine_flags(CLI::App& app) {
  add(app, "--progress", "UROCE_PROGRESS", "MODE",
      "How the background thread waits: auto (steps back while the\n"
      "program polls, sleeps when idle) or dedicated[:CPU] (pinned,\n"
      "never sleeps) (default: auto)");
  add(app, "--log-level", "UROCE_LOG_LEVEL", "LEVEL",
      "error, warning, info (one sentence for each refusal)\n"
      "or debug (default: warning)");
  add(app, "--log", "UROCE_LOG", "FILE", "Append log lines to this file (default: stderr)");
}

Result<datapath::Config> SettingFlags::config() const {
  return datapath::config_from([this](std::string_view variable) -> std::optional<Setting> {
    const std::string name(variable);
    const auto found = flags_.find(name);
    if (found != flags_.end() && found->second.option->count() > 0) {
      return Setting{found->second.flag, found->second.value};
    }
    const char* const value = getenv(name.c_str());
    if (value == nullptr || value[0] == '\0') return std::nullopt;
    return Setting{name, value};
  });
}

void SettingFlags::export_to_environment() const {
  for (const auto& [variable, flag] : flags_) {
    if (flag.option->count() > 0) setenv(variable.c_str(), flag.value.c_str(), 1);
  }
}

}  // namespace uroce::tools
