// Finds the preload and the plug-in beside the running binary, in a build tree or installed.
#include "tools/install_paths.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "tools/version.hpp"

namespace uroce::tools {
namespace {

constexpr std::string_view kPreload = "liburoce-preload.so";
constexpr std::string_view kDriver = "liburoce";
constexpr std::string_view kDriverSuffix = "-rdmav34.so";  // rdma-core's private ABI 34

struct Layout {
  std::string_view preload_folder;  // both relative to the folder of the binary
  std::string_view driver_folder;
};

constexpr std::array<Layout, 2> kLayouts = {{
    {"../provider", "../provider"},
    {kPreloadFromBin, kDriverFromBin},
}};

}  // namespace

Result<InstallPaths> find_install_paths() {
  std::error_code error;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Refusal{ENOENT, "cannot read /proc/self/exe: is /proc mounted?"};
  std::string tried;
  for (const Layout& layout : kLayouts) {
    const auto folder = binary.parent_path();
    const auto preload = (folder / layout.preload_folder / kPreload).lexically_normal();
    const auto driver = (folder / layout.driver_folder / kDriver).lexically_normal();
    const bool complete =
        access(preload.c_str(), R_OK) == 0 &&
        access(fmt::format("{}{}", driver.native(), kDriverSuffix).c_str(), R_OK) == 0;
    if (complete) return InstallPaths{preload.native(), driver.native()};
    tried += fmt::format("{}{} with {}{}", tried.empty() ? "" : "; ", preload.native(),
                         driver.native(), kDriverSuffix);
  }
  return Refusal{ENOENT, fmt::format("this installation is incomplete, looked for {}", tried)};
}

}  // namespace uroce::tools
