// Reads and validates what the user chose.
#include "datapath/config.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace uroce::datapath {
namespace {

struct Named {
  std::string_view variable;
  Status (*read)(const Setting& setting, Config& config);
};

Refusal refuse(const Setting& setting, std::string_view allowed) {
  return {EINVAL, fmt::format("{}='{}' is not allowed: {}", setting.key, setting.value, allowed)};
}

// ASCII only: the locale must not decide which names are valid.
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_name(std::string_view text, size_t max_length) {
  const auto is_name_character = [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !text.empty() && text.size() <= max_length && std::ranges::all_of(text, is_name_character);
}

Status read_fabric(const Setting& setting, Config& config) {
  if (!is_name(setting.value, kMaxFabricName)) {
    return refuse(setting, fmt::format("give 1 to {} letters, digits, '-' or '_'", kMaxFabricName));
  }
  config.fabric = setting.value;
  return Done{};
}

Status read_run_directory(const Setting& setting, Config& config) {
  if (!setting.value.starts_with('/')) return refuse(setting, "give an absolute path");
  config.run_directory = setting.value;
  while (config.run_directory.size() > 1 && config.run_directory.ends_with('/')) {
    config.run_directory.pop_back();
  }
  return Done{};
}

Status read_devices(const Setting& setting, Config& config) {
  const std::string allowed = fmt::format(
      "give 1 to {} different names, comma separated, each a letter followed by at most {} "
      "letters, "
      "digits, '-' or '_'",
      kMaxDevices, kMaxDeviceName - 1);
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= setting.value.size();) {
    const size_t end = std::min(setting.value.find(',', begin), setting.value.size());
    std::string name = setting.value.substr(begin, end - begin);
    const bool seen = std::ranges::find(names, name) != names.end();
    if (seen || !is_name(name, kMaxDeviceName) || !is_letter(name.front())) {
      return refuse(setting, allowed);
    }
    names.push_back(std::move(name));
    begin = end + 1;
  }
  if (names.size() > kMaxDevices) return refuse(setting, allowed);
  config.devices = std::move(names);
  return Done{};
}

Status read_netdev(const Setting& setting, Config& config) {
  const std::string& name = setting.value;
  // The kernel's own rule (dev_valid_name).
  const auto is_refused = [](unsigned char c) { return c <= ' ' || c == '/' || c == ':'; };
  if (name.empty() || name.size() >= IFNAMSIZ || name == "." || name == ".." ||
      std::ranges::any_of(name, is_refused)) {
    return refuse(setting, "give the name of a Linux interface, e.g. eth0");
  }
  config.wire = WireKind::kNetdev;
  config.netdev = name;
  return Done{};
}

Status read_mtu(const Setting& setting, Config& config) {
  constexpr std::array kMtus = {Mtu::k256, Mtu::k512, Mtu::k1024, Mtu::k2048, Mtu::k4096};
  for (const Mtu mtu : kMtus) {
    if (setting.value == fmt::format_int(bytes_of(mtu)).str()) {
      config.mtu = mtu;
      return Done{};
    }
  }
  return refuse(setting, "give 256, 512, 1024, 2048 or 4096");
}

// The CPU number in `text` if this process may run on it, else -1.
int parse_allowed_cpu(std::string_view text) {
  int cpu = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cpu);
  if (error != std::errc{} || end != text.data() + text.size()) return -1;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  return cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed) ? cpu : -1;
}

Status read_progress(const Setting& setting, Config& config) {
  constexpr std::string_view kDedicatedTo = "dedicated:";
  const std::string_view value = setting.value;
  config.progress = value == "auto" ? ProgressMode::kAuto : ProgressMode::kDedicated;
  config.dedicated_cpu = -1;
  if (value == "auto" || value == "dedicated") return Done{};
  if (value.starts_with(kDedicatedTo)) {
    config.dedicated_cpu = parse_allowed_cpu(value.substr(kDedicatedTo.size()));
    if (config.dedicated_cpu >= 0) return Done{};
  }
  return refuse(setting,
                "give auto, dedicated or dedicated:CPU with a CPU that this process may use");
}

constexpr std::array<std::pair<LogLevel, std::string_view>, 4> kLogLevels = {
    {{LogLevel::kError, "error"},
     {LogLevel::kWarning, "warning"},
     {LogLevel::kInfo, "info"},
     {LogLevel::kDebug, "debug"}}};

Status read_log_level(const Setting& setting, Config& config) {
  for (const auto& [level, name] : kLogLevels) {
    if (setting.value == name) {
      config.log_level = level;
      return Done{};
    }
  }
  return refuse(setting, "give error, warning, info or debug");
}

Status read_log_file(const Setting& setting, Config& config) {
  struct stat status {};
  if (setting.value.ends_with('/') ||
      (stat(setting.value.c_str(), &status) == 0 && S_ISDIR(status.st_mode))) {
    return refuse(setting, "give the path of a file, not of a directory");
  }
  config.log_file = setting.value;
  return Done{};
}

constexpr std::array<Named, 8> kSettings = {{
    {"UROCE_FABRIC", read_fabric},
    {"UROCE_RUN_DIR", read_run_directory},
    {"UROCE_DEVICES", read_devices},
    {"UROCE_NETDEV", read_netdev},
    {"UROCE_MTU", read_mtu},
    {"UROCE_PROGRESS", read_progress},
    {"UROCE_LOG_LEVEL", read_log_level},
    {"UROCE_LOG", read_log_file},
}};

// $XDG_RUNTIME_DIR after `su` may still name another user's directory: only our own counts.
std::string default_run_directory() {
  const char* const runtime = secure_getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  if (runtime != nullptr && runtime[0] == '/' && stat(runtime, &status) == 0 &&
      S_ISDIR(status.st_mode) && status.st_uid == geteuid()) {
    return fmt::format("{}/uroce", runtime);
  }
  return fmt::format("/tmp/uroce-{}", geteuid());
}

}  // namespace

std::string Config::fabric_directory() const {
  return fmt::format("{}/{}", run_directory, fabric);
}

Result<Config> config_from(const SettingSource& source) {
  Config config;
  for (const Named& named : kSettings) {
    const std::optional<Setting> setting = source(named.variable);
    if (!setting) continue;
    if (Status status = named.read(*setting, config); !status) return status.refusal();
  }
  if (config.run_directory.empty()) config.run_directory = default_run_directory();
  if (config.wire == WireKind::kNetdev) {
    const std::optional<Setting> devices = source("UROCE_DEVICES");
    if (!devices) config.devices = {"uroce0"};
    if (config.devices.size() != 1) {
      return refuse(*devices, fmt::format("interface {} carries one device", config.netdev));
    }
  }
  return config;
}

Result<Config> config_from_environment() {
  return config_from([](std::string_view variable) -> std::optional<Setting> {
    const std::string key(variable);
    const char* const value = secure_getenv(key.c_str());
    if (value == nullptr || value[0] == '\0') return std::nullopt;
    return Setting{key, value};
  });
}

std::string_view name_of(LogLevel level) {
  for (const auto& [candidate, name] : kLogLevels) {
    if (candidate == level) return name;
  }
  return "?";
}

}  // namespace uroce::datapath
