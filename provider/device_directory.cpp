// Writes the device directory.
#include "provider/device_directory.hpp"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "provider/identity.hpp"
#include "provider/refusal.hpp"

namespace uroce::provider {
namespace {

namespace fs = std::filesystem;
using datapath::DeviceDescription;

constexpr int kAttempts = 8;

struct File {
  std::string path;  // within the directory
  std::string text;  // without the final newline
};
using Files = std::vector<File>;

std::string guid_text(uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff,
                     guid >> 16 & 0xffff, guid & 0xffff);
}

std::string gid_text(const Gid& gid) {
  std::string out;
  for (size_t i = 0; i < gid.bytes.size(); ++i) {
    const bool colon = i != 0 && i % 2 == 0;
    out += fmt::format("{}{:02x}", colon ? ":" : "", gid.bytes[i]);
  }
  return out;
}

// libibverbs reads every index below gid_tbl_len, so empty ones have files too; but ndevs names an
// interface or is absent.
void add_gids(Files& files, const DeviceDescription& device) {
  for (size_t i = 0; i < device.gids.size(); ++i) {
    files.push_back({fmt::format("ports/1/gids/{}", i), gid_text(device.gids[i].gid)});
    files.push_back({fmt::format("ports/1/gid_attrs/types/{}", i), "RoCE v2"});
    if (!device.gids[i].netdev.empty()) {
      files.push_back({fmt::format("ports/1/gid_attrs/ndevs/{}", i), device.gids[i].netdev});
    }
  }
}

Files files_of(const DeviceDescription& device) {
  const bool up = device.link_up;
  Files files = {
      {"node_type", "1: CA"},
      {"node_guid", guid_text(device.node_guid)},
      {"sys_image_guid", guid_text(device.system_guid)},
      {"node_desc", "uroce"},
      {"fw_ver", kFirmwareVersion},
      {"hw_rev", "1"},
      {"board_id", kBoardId},
      {"ports/1/state", up ? "4: ACTIVE" : "1: DOWN"},
      {"ports/1/phys_state", up ? "5: LinkUp" : "3: Disabled"},
      {"ports/1/link_layer", "Ethernet"},
      {"ports/1/rate", kRate},
      {"ports/1/cap_mask", fmt::format("{:#010x}", kPortCapabilities)},
      {"ports/1/lid", "0x0"},
      {"ports/1/lid_mask_count", "0"},
      {"ports/1/sm_lid", "0x0"},
      {"ports/1/sm_sl", "0"},
      {"ports/1/pkeys/0", "0xffff"},
  };
  add_gids(files, device);
  return files;
}

// FNV-1a over names and texts: tells contents apart, nothing more.
uint64_t fingerprint(const Files& files) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](const std::string& text) {
    for (const char c : text + '\n') {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
  };
  for (const auto& [path, text] : files) {
    add(path);
    add(text);
  }
  return hash;
}

Refusal failed(std::string_view what, const std::string& path) {
  const int error = errno;
  return because(error, "device directory: cannot {} {}: {}", what, path, strerror(error));
}

// Creates what is missing of `path`; what is there must be ours.
Status make_own_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return Done{};
  if (errno == ENOENT && path.find('/', 1) != path.npos) {
    const auto parent = make_own_folder(path.substr(0, path.rfind('/')));
    if (!parent) return parent;
    if (mkdir(path.c_str(), 0700) == 0) return Done{};
  }
  if (errno != EEXIST) return failed("make", path);
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return failed("look at", path);
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid()) {
    return because(EPERM, "device directory: {} is not a folder of user {}", path, geteuid());
  }
  return Done{};
}

Status write_file(const std::string& path, std::string text) {
  text += '\n';
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return failed("create", path);
  const ssize_t written = write(fd, text.data(), text.size());
  const bool whole = written == static_cast<ssize_t>(text.size());
  if (written >= 0 && !whole) errno = ENOSPC;
  const auto done = whole ? Status(Done{}) : failed("write", path);
  close(fd);
  return done;
}

Status write_files(const std::string& folder, const Files& files) {
  for (const auto& [path, text] : files) {
    const std::string full = folder + '/' + path;
    std::error_code error;
    fs::create_directories(fs::path(full).parent_path(), error);
    if (error) return because(error.value(), "device directory: {}: {}", full, error.message());
    if (const auto done = write_file(full, text); !done) return done;
  }
  return Done{};
}

// Writes beside the place, then renames into it: it appears whole or not at all. Another process
// may have been faster; its content is the same.
Status make_content(const std::string& place, const Files& files) {
  std::string temporary = place + ".XXXXXX";
  if (mkdtemp(temporary.data()) == nullptr) return failed("make", temporary);
  Status done = write_files(temporary, files);
  if (done && rename(temporary.c_str(), place.c_str()) == 0) return done;
  if (done && errno != EEXIST && errno != ENOTEMPTY) done = failed("rename into", place);
  std::error_code ignored;  // what remains costs a few kilobytes, not correctness
  fs::remove_all(temporary, ignored);
  return done;
}

Status point_link(const std::string& link, const std::string& content) {
  // The name is free but for another call in this very process, which would link the same.
  const std::string temporary = fmt::format("{}.{}.link", link, getpid());
  if (symlink(content.c_str(), temporary.c_str()) != 0 && errno != EEXIST) {
    return failed("make", temporary);
  }
  if (rename(temporary.c_str(), link.c_str()) != 0 && errno != ENOENT) {
    return failed("rename into", link);
  }
  return Done{};
}

std::string linked_content(const std::string& link) {
  char target[NAME_MAX];
  const ssize_t length = readlink(link.c_str(), target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : std::string();
}

Status replace(const std::string& link, const std::string& content, const Files& files) {
  const std::string folder = link.substr(0, link.rfind('/') + 1);
  const std::string before = linked_content(link);
  if (const auto done = make_content(folder + content, files); !done) return done;
  if (const auto done = point_link(link, content); !done) return done;
  if (!before.empty() && before != content) {
    std::error_code ignored;
    fs::remove_all(folder + before, ignored);
  }
  return Done{};
}

}  // namespace

Result<std::string> publish_device_directory(const std::string& parent,
                                             const DeviceDescription& device) {
  const std::string folder = fmt::format("{}/{:016x}", parent, device.node_guid);
  const std::string link = folder + '/' + device.name;
  if (link.size() >= IBV_SYSFS_PATH_MAX) {
    return because(ENAMETOOLONG,
                   "device directory: {} is longer than {} characters; set a shorter "
                   "UROCE_RUN_DIR",
                   link, IBV_SYSFS_PATH_MAX - 1);
  }
  const Files files = files_of(device);
  const std::string content = fmt::format("{}.{:016x}", device.name, fingerprint(files));
  const auto published = [&] {
    return linked_content(link) == content && access((link + "/node_guid").c_str(), R_OK) == 0;
  };
  if (published()) return link;
  if (const auto done = make_own_folder(folder); !done) return done.refusal();
  // Another process that publishes something else at this moment may remove what we point to.
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (const auto done = replace(link, content, files); !done) return done.refusal();
    if (published()) break;
  }
  return link;
}

}  // namespace uroce::provider
