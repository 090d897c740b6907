// Where the parts of this installation are, relative to the running uroce binary.
#pragma once

#include <string>

#include "transport/result.hpp"

namespace uroce::tools {

struct InstallPaths {
  std::string preload;  // liburoce-preload.so
  std::string driver;   // what IBV_DRIVERS takes: the plug-in's path without "-rdmav34.so"
};

// Build tree (build/tools/uroce) or installed tree (<prefix>/bin/uroce, staged by DESTDIR or
// not). Refusal: ENOENT, naming the file that was looked for.
Result<InstallPaths> find_install_paths();

}  // namespace uroce::tools
