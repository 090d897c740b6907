// What a user can choose, read from the environment (`uroce run` sets it from flags) and validated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/result.hpp"
#include "transport/types.hpp"

namespace uroce::datapath {

enum class WireKind : uint8_t { kFabric, kNetdev };

// How the background thread waits: see ARCHITECTURE.md, "Threads".
enum class ProgressMode : uint8_t {
  kAuto,       // steps back while the application polls, spins briefly, yields, then sleeps
  kDedicated,  // pinned to `dedicated_cpu`, never sleeps
};

enum class LogLevel : uint8_t { kError, kWarning, kInfo, kDebug };

// Precedence: flag > environment > default. Names in brackets are the environment's.
struct Config {
  WireKind wire = WireKind::kFabric;
  std::string fabric = "default";  // [UROCE_FABRIC] letters, digits, '-', '_' ; 1..32 characters
  std::string run_directory;  // [UROCE_RUN_DIR] parent of fabrics; default $XDG_RUNTIME_DIR/uroce,
                              // else /tmp/uroce-<uid>
  std::vector<std::string> devices = {"uroce0", "uroce1"};  // [UROCE_DEVICES] comma separated
  std::string netdev;    // [UROCE_NETDEV] a Linux interface: one device, uroce0, on it
  Mtu mtu = Mtu::k4096;  // [UROCE_MTU] largest path MTU offered; netdev lowers it to what fits
  ProgressMode progress = ProgressMode::kAuto;  // [UROCE_PROGRESS] auto | dedicated[:CPU]
  int dedicated_cpu = -1;                       // -1: the last allowed CPU
  LogLevel log_level = LogLevel::kWarning;      // [UROCE_LOG_LEVEL] error | warning | info | debug
  std::string log_file;                         // [UROCE_LOG] empty: stderr

  // Path of this fabric's directory: run_directory/fabric.
  std::string fabric_directory() const;
};

inline constexpr size_t kMaxFabricName = 32;  // characters
inline constexpr size_t kMaxDevices = 16;
inline constexpr size_t kMaxDeviceName = 32;  // characters; libibverbs has room for 63

// One choice as the user made it: the key is what a refusal names ("UROCE_MTU" or "--mtu").
struct Setting {
  std::string key;
  std::string value;
};
// The user's choice for an environment variable of the list above; none: the default.
using SettingSource = std::function<std::optional<Setting>(std::string_view variable)>;

// Refusals (EINVAL) name the key, its value and what is allowed.
Result<Config> config_from(const SettingSource& source);
// From the process's environment, where an empty variable counts as unset.
Result<Config> config_from_environment();

std::string_view name_of(LogLevel level);

}  // namespace uroce::datapath
