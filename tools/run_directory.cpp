// Makes and checks the user's private directory for fabrics.
#include "tools/run_directory.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace uroce::tools {
namespace {

Status prepare_private_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    const int error = errno;
    return Refusal{error, fmt::format("cannot make the run directory '{}': {} (set UROCE_RUN_DIR "
                                      "to a directory in which you may write)",
                                      path, strerror(error))};
  }
  struct stat status {};
  // lstat: a symbolic link in /tmp may be someone else's trap.
  if (lstat(path.c_str(), &status) != 0) {
    const int error = errno;
    return Refusal{error,
                   fmt::format("cannot look at the run directory '{}': {}", path, strerror(error))};
  }
  if (!S_ISDIR(status.st_mode)) {
    return Refusal{ENOTDIR, fmt::format("the run directory '{}' is not a directory", path)};
  }
  if (status.st_uid != geteuid()) {
    return Refusal{EPERM, fmt::format("the run directory '{}' belongs to user {}, and you are {}: "
                                      "set UROCE_RUN_DIR to a directory of yours",
                                      path, status.st_uid, geteuid())};
  }
  if ((status.st_mode & 077) != 0) {
    return Refusal{EPERM, fmt::format("the run directory '{}' is open to others (mode {:o}): "
                                      "chmod 700 it",
                                      path, status.st_mode & 0777)};
  }
  return Done{};
}

}  // namespace

Status prepare_run_directory(const std::string& parent, const std::string& directory) {
  if (Status status = prepare_private_directory(parent); !status) return status;
  return prepare_private_directory(directory);
}

}  // namespace uroce::tools
