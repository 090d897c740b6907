// Claims and frees slots by fcntl locks, and reads who holds them.
#include "datapath/fabric/slot_table.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <optional>

namespace uroce::datapath {

namespace {

constexpr const char* kTableName = "slot-table";
constexpr mode_t kFileMode = 0600;
constexpr int kLockAttempts = 10'000;  // of 200 us each: a claim takes less than a millisecond

// The slot locks of this process, all fabrics'. Opening and closing one of these files would drop
// its lock, so they are never opened again; all opening, locking and closing of lock files happens
// under the mutex.
struct HeldLocks {
  std::mutex mutex;
  std::vector<SlotLock> locks;
};

// Never destroyed: devices may be closed by other static destructors.
HeldLocks& held_locks() {
  static auto* const locks = new HeldLocks;
  return *locks;
}

// The lock files of one fabric.
struct LockFiles {
  explicit LockFiles(int directory_fd) : fd(directory_fd) {
    struct stat status {};
    fstat(fd, &status);
    device = status.st_dev;
    inode = status.st_ino;
  }
  SlotLock lock_of(uint8_t slot) const { return {device, inode, slot}; }

  int fd;
  dev_t device;
  ino_t inode;
};

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

// The process that holds the slot's lock, if any. Under held_locks().mutex.
std::optional<pid_t> lock_holder(const LockFiles& files, uint8_t slot) {
  if (std::ranges::count(held_locks().locks, files.lock_of(slot)) != 0) return getpid();
  const OwnedFd fd(
      openat(files.fd, RunDirectory::lock_name(slot).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct flock lock = whole_file(F_WRLCK);
  if (!fd || fcntl(fd.get(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

bool is_any_slot_held(const LockFiles& files) {
  for (size_t slot = 1; slot < kSlotCount; ++slot) {
    if (lock_holder(files, static_cast<uint8_t>(slot))) return true;
  }
  return false;
}

Refusal refuse_errno(const RunDirectory& directory, std::string_view what) {
  const int error = errno;
  return {error, fmt::format("fabric {}: {}: {}", directory.path(), what, strerror(error))};
}

// Locks slot 0's file, which stands for the table, until the descriptor is closed.
Result<OwnedFd> lock_table(const RunDirectory& directory) {
  OwnedFd fd(openat(directory.slots_fd(), RunDirectory::lock_name(0).c_str(),
                    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!fd) return refuse_errno(directory, "cannot open the lock file of its slot table");
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    struct flock lock = whole_file(F_WRLCK);
    if (fcntl(fd.get(), F_SETLK, &lock) == 0) return fd;
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
      return refuse_errno(directory, "cannot lock its slot table");
    }
    const timespec pause{0, 200'000};
    nanosleep(&pause, nullptr);
  }
  struct flock lock = whole_file(F_WRLCK);
  fcntl(fd.get(), F_GETLK, &lock);
  return Refusal{EBUSY, fmt::format("fabric {}: process {} keeps the slot table locked (is it "
                                    "stopped by a debugger?)",
                                    directory.path(), lock.l_pid)};
}

bool is_our_layout(const SlotTableHeader& header) {
  return header.magic == SlotTableHeader::kMagic &&
         header.protocol_version == kFabricProtocolVersion &&
         header.entry_bytes == sizeof(SlotEntry);
}

// What another program's table says of itself, as far as it can be read.
std::string describe_foreign(const SlotTableHeader& header) {
  if (header.magic != SlotTableHeader::kMagic) return "an unknown version";
  return fmt::format("fabric protocol {} ({})", header.protocol_version,
                     std::string_view(header.build, strnlen(header.build, sizeof header.build)));
}

Status write_new_table(const RunDirectory& directory, int fd) {
  // Allocated now, so that a full file system is refused here and not by SIGBUS later.
  if (const int error = posix_fallocate(fd, 0, sizeof(SlotTable)); error != 0) {
    errno = error;
    return refuse_errno(directory, "cannot allocate its slot table");
  }
  SlotTableHeader header{};
  header.magic = SlotTableHeader::kMagic;
  header.protocol_version = kFabricProtocolVersion;
  header.entry_bytes = sizeof(SlotEntry);
  build_name().copy(header.build, sizeof header.build - 1);
  if (pwrite(fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
    return refuse_errno(directory, "cannot write its slot table");
  }
  return Done{};
}

Result<OwnedFd> open_table_file(const RunDirectory& directory, int flags) {
  OwnedFd fd(
      openat(directory.fd(), kTableName, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!fd) return refuse_errno(directory, "cannot open its slot table");
  return fd;
}

// Opens the table, or writes it anew when it is missing or is another version's and nobody is left
// of those who used it. Under the table's lock.
Result<OwnedFd> open_table(const RunDirectory& directory) {
  auto fd = open_table_file(directory, O_CREAT);
  if (!fd) return fd;
  struct stat status {};
  SlotTableHeader header{};
  if (fstat(fd->get(), &status) != 0 || pread(fd->get(), &header, sizeof header, 0) < 0) {
    return refuse_errno(directory, "cannot read its slot table");
  }
  if (status.st_size == sizeof(SlotTable) && is_our_layout(header)) return fd;
  if (status.st_size != 0) {
    if (is_any_slot_held(LockFiles(directory.slots_fd()))) {
      return Refusal{
          EPROTO, fmt::format("fabric {} is in use by processes that speak {}, this program speaks "
                              "fabric protocol {} ({}): stop them or choose another UROCE_FABRIC",
                              directory.path(), describe_foreign(header), kFabricProtocolVersion,
                              build_name())};
    }
    if (unlinkat(directory.fd(), kTableName, 0) != 0) {
      return refuse_errno(directory, "cannot replace its slot table");
    }
    fd = open_table_file(directory, O_CREAT | O_EXCL);
    if (!fd) return fd;
  }
  if (Status status_ = write_new_table(directory, fd->get()); !status_) return status_.refusal();
  return fd;
}

Result<SlotTable*> map_table(const RunDirectory& directory, int fd, int protection) {
  void* const mapping = mmap(nullptr, sizeof(SlotTable), protection, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return refuse_errno(directory, "cannot map its slot table");
  return static_cast<SlotTable*>(mapping);
}

void mark_free(SlotTable& table, SlotEntry& entry) {
  entry.freed_sequence = table.header.freed_counter.fetch_add(1) + 1;
  entry.held = 0;
}

// Free slots, least recently freed first. Slots of the dead are noticed, and count as freed, now.
std::vector<uint8_t> order_free_slots(SlotTable& table, const LockFiles& files) {
  std::vector<uint8_t> free_slots;
  for (size_t i = 1; i < kSlotCount; ++i) {
    const auto slot = static_cast<uint8_t>(i);
    SlotEntry& entry = table.entries[slot];
    if (entry.held != 0) {
      if (lock_holder(files, slot)) continue;
      mark_free(table, entry);
    }
    free_slots.push_back(slot);
  }
  std::ranges::stable_sort(
      free_slots, {}, [&table](uint8_t slot) { return table.entries[slot].freed_sequence.load(); });
  return free_slots;
}

OwnedFd try_lock_slot(int slots_fd, uint8_t slot) {
  OwnedFd fd(openat(slots_fd, RunDirectory::lock_name(slot).c_str(),
                    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  struct flock lock = whole_file(F_WRLCK);
  if (fd && fcntl(fd.get(), F_SETLK, &lock) != 0) fd.reset();
  return fd;
}

void copy_text(std::string_view text, char* out, size_t out_bytes) {
  memset(out, 0, out_bytes);
  text.copy(out, out_bytes - 1);
}

std::string read_text(const char* text, size_t bytes) {
  return std::string(text, strnlen(text, bytes));
}

}  // namespace

std::string_view build_name() {
  return "uroce " UROCE_VERSION;
}

Result<std::unique_ptr<SlotClaim>> SlotClaim::claim(const RunDirectory& directory,
                                                    std::string_view device) {
  const std::lock_guard guard(held_locks().mutex);
  auto table_lock = lock_table(directory);
  if (!table_lock) return table_lock.refusal();
  auto fd = open_table(directory);
  if (!fd) return fd.refusal();
  auto table = map_table(directory, fd->get(), PROT_READ | PROT_WRITE);
  if (!table) return table.refusal();
  const LockFiles files(directory.slots_fd());
  std::unique_ptr<SlotClaim> claim(new SlotClaim(*table));
  for (const uint8_t slot : order_free_slots(**table, files)) {
    claim->lock_file_ = try_lock_slot(files.fd, slot);
    if (!claim->lock_file_) continue;
    claim->slot_ = slot;
    claim->lock_ = files.lock_of(slot);
    held_locks().locks.push_back(claim->lock_);
    SlotEntry& entry = claim->own_entry();
    copy_text(device, entry.device, sizeof entry.device);
    copy_text(program_invocation_short_name, entry.command, sizeof entry.command);
    entry.pid = static_cast<uint32_t>(getpid());
    entry.doorbell = 0;
    entry.last_polled_tsc = 0;
    entry.cpu = -1;
    claim->generation_ = ++entry.generation;
    entry.held = 1;
    return claim;
  }
  return Refusal{ENOSPC, fmt::format("fabric {}: all {} slots are held; `uroce devices` lists the "
                                     "processes",
                                     directory.path(), kSlotCount - 1)};
}

SlotClaim::~SlotClaim() {
  if (lock_file_) {
    const std::lock_guard guard(held_locks().mutex);
    std::erase(held_locks().locks, lock_);
    mark_free(*table_, own_entry());
    lock_file_.reset();
  }
  munmap(table_, sizeof(SlotTable));
}

// Closing a file drops the locks of the closing process only: the parent's stay. The list may have
// been in the hands of a thread that does not exist here, so it is made anew, not cleared.
void SlotClaim::abandon_in_child() {
  new (&held_locks()) HeldLocks;
  lock_file_.reset();
}

Result<std::vector<SlotHolder>> list_held_slots(const RunDirectory& directory) {
  std::vector<SlotHolder> holders;
  auto fd = open_table_file(directory, 0);
  if (!fd) {
    if (fd.refusal().error == ENOENT) return holders;
    return fd.refusal();
  }
  struct stat status {};
  SlotTableHeader header{};
  if (fstat(fd->get(), &status) != 0 || status.st_size != sizeof(SlotTable) ||
      pread(fd->get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      !is_our_layout(header)) {
    return Refusal{EPROTO,
                   fmt::format("fabric {}: its slot table is {}'s; this program speaks fabric "
                               "protocol {} ({})",
                               directory.path(), describe_foreign(header), kFabricProtocolVersion,
                               build_name())};
  }
  auto table = map_table(directory, fd->get(), PROT_READ);
  if (!table) return table.refusal();
  const LockFiles files(directory.slots_fd());
  const std::lock_guard guard(held_locks().mutex);
  for (size_t i = 1; i < kSlotCount; ++i) {
    const auto slot = static_cast<uint8_t>(i);
    const SlotEntry& entry = (*table)->entries[slot];
    if (entry.held == 0) continue;
    const std::optional<pid_t> pid = lock_holder(files, slot);
    if (!pid) continue;
    holders.push_back({slot, read_text(entry.device, sizeof entry.device), *pid,
                       read_text(entry.command, sizeof entry.command), entry.generation});
  }
  munmap(*table, sizeof(SlotTable));
  return holders;
}

}  // namespace uroce::datapath
