// Who is on the fabric: 255 slots, each held by one process and device through a lock that death
// releases.
//
// A slot is held while its lock file is locked (fcntl, so a forked child does not hold it). What
// the holder says of itself stands in a file that every endpoint maps. Because closing any
// descriptor of a file drops a process's fcntl locks on it, only this module opens lock files.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/fabric/run_directory.hpp"
#include "transport/result.hpp"

namespace uroce::datapath {

inline constexpr uint32_t kFabricProtocolVersion = 1;
inline constexpr size_t kSlotCount = 256;  // slot 0 is never a process
// Version of this build, for messages: "uroce 0.1.0".
std::string_view build_name();

// One slot in the shared file, 256 bytes. The holder writes; everybody reads; `doorbell` is written
// by both. Values are hints but for `generation`: the lock decides who lives.
struct SlotEntry {
  // Lines 0 and 1: read by senders, rarely written.
  alignas(256) std::atomic<uint32_t> generation;  // grows by one at each claim
  std::atomic<uint32_t> held;                     // 1 from claim to orderly release
  std::atomic<uint32_t> pid;
  std::atomic<uint32_t> unused;
  std::atomic<uint64_t> freed_sequence;        // order in which slots became free; 0: never used
  char device[40];                             // NUL-terminated
  alignas(64) std::atomic<uint32_t> doorbell;  // a futex: Doorbell::kArmed while its holder sleeps
  char command[32];                            // NUL-terminated name of the process
  // Lines 2 and 3: written at each poll.
  alignas(128) std::atomic<uint64_t> last_polled_tsc;
  std::atomic<int32_t> cpu;  // on which the holder last polled
};
static_assert(sizeof(SlotEntry) == 256);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct SlotTableHeader {
  static constexpr uint64_t kMagic = 0x31746c7365637275;  // "urceslt1"
  uint64_t magic;
  uint32_t protocol_version;
  uint32_t entry_bytes;
  char build[48];
  std::atomic<uint64_t> freed_counter;
};

// The mapped file.
struct SlotTable {
  alignas(4096) SlotTableHeader header;
  alignas(4096) SlotEntry entries[kSlotCount];
};

// What `uroce devices` shows of a held slot.
struct SlotHolder {
  uint8_t slot = 0;
  std::string device;
  pid_t pid = 0;
  std::string command;
  uint32_t generation = 0;
};

// Names a slot's lock within this process: the directory of its lock file, and the slot.
struct SlotLock {
  dev_t device = 0;
  ino_t directory = 0;
  uint8_t slot = 0;
  bool operator==(const SlotLock&) const = default;
};

// A held slot and the mapped table. Destruction frees the slot.
class SlotClaim {
 public:
  // Takes the slot that has been free longest. Refusals: EPROTO (other processes on this fabric
  // speak another version; both are named), ENOSPC (all 255 are held), EBUSY, errors of the file
  // system.
  static Result<std::unique_ptr<SlotClaim>> claim(const RunDirectory& directory,
                                                  std::string_view device);
  ~SlotClaim();
  SlotClaim(const SlotClaim&) = delete;

  uint8_t slot() const { return slot_; }
  uint32_t generation() const { return generation_; }
  SlotEntry& entry(uint8_t slot) { return table_->entries[slot]; }
  const SlotEntry& entry(uint8_t slot) const { return table_->entries[slot]; }
  SlotEntry& own_entry() { return table_->entries[slot_]; }

  // In a forked child: lets go of what was inherited; the parent keeps its slot.
  void abandon_in_child();

 private:
  explicit SlotClaim(SlotTable* table) : table_(table) {}

  SlotTable* table_;
  OwnedFd lock_file_;
  SlotLock lock_;
  uint8_t slot_ = 0;
  uint32_t generation_ = 0;
};

// All slots that living processes hold, in order.
Result<std::vector<SlotHolder>> list_held_slots(const RunDirectory& directory);

}  // namespace uroce::datapath
