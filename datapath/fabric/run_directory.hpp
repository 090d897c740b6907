// The directory that is a fabric: its lock files, sockets and slot table, for one user only.
//
//   <parent>/<fabric>/slots/NNN     lock file of slot NNN; 000 guards the slot table
//   <parent>/<fabric>/slot-table    see slot_table.hpp
//   <parent>/<fabric>/NNN.sock      control socket of the slot's holder
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "datapath/fabric/owned_fd.hpp"
#include "transport/result.hpp"

struct sockaddr_un;

namespace uroce::datapath {

class RunDirectory {
 public:
  // Creates what is missing: the directory and its parent, mode 0700. Refuses, with EPERM, a
  // directory that another user owns or can enter, and a symbolic link in its place.
  static Result<RunDirectory> open(const std::string& path);
  // The same without creating anything; ENOENT when there is no such fabric.
  static Result<RunDirectory> open_existing(const std::string& path);

  const std::string& path() const { return path_; }
  int fd() const { return directory_.get(); }
  int slots_fd() const { return slots_.get(); }

  // "017" for the lock file of slot 17.
  static std::string lock_name(uint8_t slot);
  // "017.sock".
  static std::string socket_name(uint8_t slot);
  // Address of a slot's control socket that fits sun_path however long the directory's path is.
  Result<sockaddr_un> socket_address(uint8_t slot) const;

  // In a forked child: the descriptors are closed, nothing on disk changes.
  void abandon();

 private:
  RunDirectory(std::string path, OwnedFd directory, OwnedFd slots)
      : path_(std::move(path)), directory_(std::move(directory)), slots_(std::move(slots)) {}

  std::string path_;
  OwnedFd directory_;
  OwnedFd slots_;
};

}  // namespace uroce::datapath
