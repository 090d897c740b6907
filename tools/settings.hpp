// The flags that stand for UROCE_… variables, shared by the verbs that read the configuration.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "datapath/config.hpp"

namespace uroce::tools {

class SettingFlags {
 public:
  // Adds the flags of `run` to `app`: those that choose devices, then those of the engine.
  void add_device_flags(CLI::App& app);
  void add_engine_flags(CLI::App& app);

  // Flag > environment > default. Refusals name the flag or the variable.
  Result<datapath::Config> config() const;

  // Puts the flags that were given into this process's environment.
  void export_to_environment() const;

 private:
  struct Flag {
    std::string flag;      // "--mtu"
    std::string variable;  // "UROCE_MTU"
    std::string value;
    CLI::Option* option = nullptr;
  };
  void add(CLI::App& app, const std::string& flag, const std::string& variable,
           const std::string& placeholder, const std::string& description);

  // Pointers into it stay valid: CLI11 writes to `value`.
  std::map<std::string, Flag> flags_;  // by variable
};

}  // namespace uroce::tools
