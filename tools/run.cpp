// `uroce run`: sets up the environment in which an unmodified program finds the device, then
// becomes that program, so that its exit status and signals need no passing on.
#include <errno.h>
#include <fmt/format.h>
#include <net/if.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "datapath/fabric/run_directory.hpp"
#include "tools/command.hpp"
#include "tools/install_paths.hpp"
#include "tools/settings.hpp"

namespace uroce::tools {
namespace {

struct RunOptions {
  SettingFlags settings;
  const std::vector<std::string>* operands = nullptr;  // "--" and the command, or empty
};

int refuse(const std::string& why) {
  spdlog::error("{}", why);
  return kExitUsage;
}

// The interface must be here and raw sockets allowed: better said now than by a program that sees
// no device.
Status check_netdev(const std::string& netdev) {
  if (if_nametoindex(netdev.c_str()) == 0) {
    std::string present;
    if (struct if_nameindex* const list = if_nameindex(); list != nullptr) {
      for (const struct if_nameindex* i = list; i->if_index != 0; ++i) {
        present += fmt::format("{}{}", present.empty() ? "" : ", ", i->if_name);
      }
      if_freenameindex(list);
    }
    return Refusal{ENODEV,
                   fmt::format("there is no interface '{}' here (there are: {})", netdev, present)};
  }
  const int probe = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (probe < 0) {
    return Refusal{errno, fmt::format("interface '{}' needs raw sockets: run as root or with "
                                      "CAP_NET_RAW; without --netdev the fabric needs no rights",
                                      netdev)};
  }
  close(probe);
  return Done{};
}

// LD_PRELOAD and IBV_DRIVERS separate by these characters and know no quoting: a path that holds
// one is reached through a link in the run directory.
Result<std::string> without_separators(const std::string& path, const std::string& run_directory) {
  constexpr std::string_view kSeparators = " :;\t\n";
  if (path.find_first_of(kSeparators) == std::string::npos) return path;
  const std::filesystem::path real(path);
  const std::string target = real.parent_path().native();
  const std::string link =
      fmt::format("{}/install-{:x}", run_directory, std::hash<std::string>{}(target));
  const Refusal refusal{EINVAL, fmt::format("the path '{}' holds a separator of LD_PRELOAD, and "
                                            "'{}' cannot stand in for it",
                                            path, link)};
  if (link.find_first_of(kSeparators) != std::string::npos) return refusal;
  if (symlink(target.c_str(), link.c_str()) != 0) {
    std::error_code error;
    if (errno != EEXIST || std::filesystem::read_symlink(link, error) != target) return refusal;
  }
  return fmt::format("{}/{}", link, real.filename().native());
}

// Adds `entry` to a list in the environment, behind what is there: a sanitizer's runtime has to
// stay first. Twice the same entry (uroce run inside uroce run) stays one.
void append_to_list(const char* variable, const std::string& entry) {
  const char* const present = getenv(variable);
  if (present == nullptr || present[0] == '\0') {
    setenv(variable, entry.c_str(), 1);
    return;
  }
  if (fmt::format(":{}:", present).find(fmt::format(":{}:", entry)) != std::string::npos) return;
  setenv(variable, fmt::format("{}:{}", present, entry).c_str(), 1);
}

Status export_environment(const SettingFlags& settings, const datapath::Config& config) {
  Result<InstallPaths> paths = find_install_paths();
  if (!paths) return paths.refusal();
  Result<std::string> preload = without_separators(paths->preload, config.run_directory);
  if (!preload) return preload.refusal();
  Result<std::string> driver = without_separators(paths->driver, config.run_directory);
  if (!driver) return driver.refusal();

  settings.export_to_environment();
  if (!config.log_file.empty()) {
    // The program may change its directory before it opens the device.
    setenv("UROCE_LOG", std::filesystem::absolute(config.log_file).c_str(), 1);
  }
  append_to_list("LD_PRELOAD", *preload);
  // rdma-core reads the older name first, and then only that one.
  append_to_list(getenv("RDMAV_DRIVERS") != nullptr ? "RDMAV_DRIVERS" : "IBV_DRIVERS", *driver);
  return Done{};
}

// execvp says EACCES when it could not look into some folder of $PATH; a shell would say that there
// is no such command.
bool exists_somewhere(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), F_OK) == 0;
  const char* const path = getenv("PATH");
  std::string_view rest = path == nullptr ? "/bin:/usr/bin" : path;
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    if (access(fmt::format("{}/{}", rest.substr(0, colon), name).c_str(), F_OK) == 0) return true;
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return false;
}

int become(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  int error = errno;
  if (error == EACCES && !exists_somewhere(command[0])) error = ENOENT;
  spdlog::error("cannot run '{}': {}", command[0], strerror(error));
  return error == ENOENT || error == ENOTDIR ? kExitNotFound : kExitNotExecutable;
}

int run(const RunOptions& options, std::vector<std::string> command) {
  if (!options.operands->empty()) {
    if (!command.empty()) {
      return refuse(fmt::format("'{}' is not a flag of uroce run: the command goes behind '--'",
                                command.front()));
    }
    command.assign(options.operands->begin() + 1, options.operands->end());
  } else if (!command.empty() && command.front().starts_with('-')) {
    return refuse(
        fmt::format("uroce run has no flag '{}' (see uroce run --help)", command.front()));
  }
  if (command.empty()) {
    return refuse("what shall run? give a command: uroce run -- ibv_devinfo");
  }
  const Result<datapath::Config> config = options.settings.config();
  if (!config) return refuse(config.refusal().why);
  if (config->wire == datapath::WireKind::kNetdev) {
    if (Status status = check_netdev(config->netdev); !status) return refuse(status.refusal().why);
  }
  // Made and checked here, so that a directory of someone else stops us before anything starts.
  const auto directory = datapath::RunDirectory::open(config->fabric_directory());
  if (!directory) return refuse(directory.refusal().why);
  if (Status status = export_environment(options.settings, *config); !status) {
    return refuse(status.refusal().why);
  }
  return become(command);
}

}  // namespace

Command make_run_command(CLI::App& parent, const std::vector<std::string>& operands) {
  CLI::App* const app =
      parent.add_subcommand("run", "Run an unmodified ibverbs program with the card in sight");
  app->formatter(std::make_shared<UsageFormatter>("uroce run [FLAGS] -- COMMAND [ARGUMENTS...]"));
  app->prefix_command();
  auto options = std::make_shared<RunOptions>();
  options->operands = &operands;
  options->settings.add_device_flags(*app);
  options->settings.add_engine_flags(*app);
  app->footer(
      "The exit status and signals are the program's own; 127 if it cannot be found, 126 if it\n"
      "cannot be executed, 2 for a wrong flag or value: then nothing was started.\n\n"
      "Further variables: $UROCE_RUN_DIR, the parent of the fabrics' directories (default\n"
      "$XDG_RUNTIME_DIR/uroce, else /tmp/uroce-<uid>). A flag goes before its variable.\n\n"
      "  uroce run -- ibv_devinfo\n"
      "  uroce run -- bash                               and anything in it\n"
      "  uroce run --log-level info -- ./my_program      says why a verb was refused");
  return {app, [app, options] { return run(*options, app->remaining()); }};
}

}  // namespace uroce::tools
