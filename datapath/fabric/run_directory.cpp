// Opens a fabric's directory so that no other user, and no link planted in /tmp, gets in between.
#include "datapath/fabric/run_directory.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace uroce::datapath {

namespace {

constexpr mode_t kPrivate = 0700;
constexpr int kOpenFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

Refusal refuse_errno(int error, std::string_view what, const std::string& path) {
  if (error == ELOOP || error == ENOTDIR) {
    return {EPERM, fmt::format("fabric directory {}: it is not a directory (a symbolic link or a "
                               "file in its place); remove it or set UROCE_RUN_DIR",
                               path)};
  }
  return {error, fmt::format("fabric directory {}: cannot {}: {}", path, what, strerror(error))};
}

// The fabric's own directory: ours, and nobody else may enter.
Status check_private(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return refuse_errno(errno, "read its owner", path);
  if (status.st_uid != geteuid()) {
    return Refusal{EPERM, fmt::format("fabric directory {} belongs to user {}, not to user {}: set "
                                      "UROCE_RUN_DIR to a directory of your own",
                                      path, status.st_uid, geteuid())};
  }
  if ((status.st_mode & 0777) != kPrivate) {
    return Refusal{EPERM, fmt::format("fabric directory {} has mode {:04o} where 0700 is needed: "
                                      "run chmod 0700 on it if nobody else has used it",
                                      path, status.st_mode & 0777)};
  }
  return Done{};
}

// Its parent: nobody but us and root may rename things in it.
Status check_parent(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return refuse_errno(errno, "read its owner", path);
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    return Refusal{EPERM, fmt::format("run directory {} belongs to user {}, not to user {}: set "
                                      "UROCE_RUN_DIR to a directory of your own",
                                      path, status.st_uid, geteuid())};
  }
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_write && (status.st_mode & S_ISVTX) == 0) {
    return Refusal{EPERM,
                   fmt::format("run directory {} has mode {:04o}, so other users can replace what "
                               "is in it: run chmod 0700 on it or set UROCE_RUN_DIR",
                               path, status.st_mode & 0777)};
  }
  return Done{};
}

// Opens a directory without following a link in its last component; `create` makes it first.
Result<OwnedFd> open_directory(int at, const std::string& name, const std::string& path,
                               bool create) {
  // The umask may take bits away, never add any: a missing one shows in check_private.
  if (create && mkdirat(at, name.c_str(), kPrivate) != 0 && errno != EEXIST) {
    return refuse_errno(errno, "create it", path);
  }
  OwnedFd fd(openat(at, name.c_str(), kOpenFlags));
  if (!fd) return refuse_errno(errno, "open it", path);
  return fd;
}

struct Opened {
  OwnedFd directory;
  OwnedFd slots;
};

Result<Opened> open_fabric(const std::string& path, bool create) {
  const size_t slash = path.find_last_of('/');
  if (path.empty() || path[0] != '/' || slash + 1 == path.size()) {
    return Refusal{EINVAL, fmt::format("fabric directory '{}' is not an absolute path", path)};
  }
  const std::string parent_path = slash == 0 ? "/" : path.substr(0, slash);
  auto parent = open_directory(AT_FDCWD, parent_path, parent_path, create && slash != 0);
  if (!parent) return parent.refusal();
  if (Status status = check_parent(parent->get(), parent_path); !status) return status.refusal();
  auto directory = open_directory(parent->get(), path.substr(slash + 1), path, create);
  if (!directory) return directory.refusal();
  if (Status status = check_private(directory->get(), path); !status) return status.refusal();
  auto slots = open_directory(directory->get(), "slots", path + "/slots", create);
  if (!slots) return slots.refusal();
  return Opened{std::move(*directory), std::move(*slots)};
}

}  // namespace

Result<RunDirectory> RunDirectory::open(const std::string& path) {
  auto opened = open_fabric(path, true);
  if (!opened) return opened.refusal();
  return RunDirectory(path, std::move(opened->directory), std::move(opened->slots));
}

Result<RunDirectory> RunDirectory::open_existing(const std::string& path) {
  auto opened = open_fabric(path, false);
  if (!opened) return opened.refusal();
  return RunDirectory(path, std::move(opened->directory), std::move(opened->slots));
}

std::string RunDirectory::lock_name(uint8_t slot) {
  return fmt::format("{:03}", slot);
}

std::string RunDirectory::socket_name(uint8_t slot) {
  return fmt::format("{:03}.sock", slot);
}

// sun_path has 108 bytes; the name of our own descriptor in /proc is short.
Result<sockaddr_un> RunDirectory::socket_address(uint8_t slot) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string path = fmt::format("{}/{}", path_, socket_name(slot));
  if (path.size() >= sizeof address.sun_path) {
    path = fmt::format("/proc/self/fd/{}/{}", fd(), socket_name(slot));
    if (access("/proc/self/fd", X_OK) != 0) {
      return Refusal{ENAMETOOLONG,
                     fmt::format("fabric directory {} is too long for a socket and /proc is not "
                                 "mounted: set UROCE_RUN_DIR to a shorter path",
                                 path_)};
    }
  }
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

void RunDirectory::abandon() {
  directory_.reset();
  slots_.reset();
}

}  // namespace uroce::datapath
