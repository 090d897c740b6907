// The run directory and the slots in it: who may join, and who holds what.
#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "datapath/fabric/run_directory.hpp"
#include "datapath/fabric/slot_table.hpp"
#include "tests/unit/datapath/fabric_fixture.hpp"
#include "tests/unit/datapath/fabric_process.hpp"

namespace uroce::datapath {

namespace {

RunDirectory open_directory(const TemporaryFabric& fabric) {
  return std::move(RunDirectory::open(fabric.config.fabric_directory()).value());
}

std::unique_ptr<SlotClaim> claim(const RunDirectory& directory,
                                 std::string_view device = "uroce0") {
  auto claimed = SlotClaim::claim(directory, device);
  if (!claimed) FAIL(claimed.refusal().why);
  return std::move(*claimed);
}

Refusal refusal_of(const Result<RunDirectory>& result) {
  REQUIRE_FALSE(result.ok());
  return result.refusal();
}

bool mentions(const Refusal& refusal, std::string_view text) {
  INFO(refusal.why);
  return refusal.why.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a run directory is made private, and opened again") {
  TemporaryFabric fabric;
  const RunDirectory made = open_directory(fabric);
  struct stat status {};
  REQUIRE(stat(made.path().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  CHECK(RunDirectory::open_existing(made.path()).ok());
  CHECK(refusal_of(RunDirectory::open_existing(made.path() + "-other")).error == ENOENT);
}

TEST_CASE("a run directory that others may enter is refused, naming its mode") {
  TemporaryFabric fabric;
  const std::string path = open_directory(fabric).path();
  REQUIRE(chmod(path.c_str(), 0755) == 0);
  const Refusal refusal = refusal_of(RunDirectory::open(path));
  CHECK(refusal.error == EPERM);
  CHECK(mentions(refusal, "0755"));
}

TEST_CASE("a run directory of another user is refused, naming the user") {
  if (geteuid() != 0) return;
  TemporaryFabric fabric;
  const std::string path = open_directory(fabric).path();
  REQUIRE(chown(path.c_str(), 12345, 12345) == 0);
  const Refusal refusal = refusal_of(RunDirectory::open(path));
  CHECK(refusal.error == EPERM);
  CHECK(mentions(refusal, "12345"));
  REQUIRE(chown(path.c_str(), 0, 0) == 0);
  REQUIRE(chown(fabric.config.run_directory.c_str(), 12345, 12345) == 0);
  CHECK(refusal_of(RunDirectory::open(path)).error == EPERM);
}

TEST_CASE("a run directory in which others may rename is refused") {
  TemporaryFabric fabric;
  REQUIRE(chmod(fabric.config.run_directory.c_str(), 0777) == 0);
  CHECK(refusal_of(RunDirectory::open(fabric.config.fabric_directory())).error == EPERM);
  REQUIRE(chmod(fabric.config.run_directory.c_str(), 01777) == 0);
  CHECK(RunDirectory::open(fabric.config.fabric_directory()).ok());
}

TEST_CASE("a symbolic link in the place of a run directory is refused") {
  TemporaryFabric fabric;
  const std::string target = fabric.config.run_directory + "/target";
  REQUIRE(mkdir(target.c_str(), 0700) == 0);
  REQUIRE(symlink(target.c_str(), fabric.config.fabric_directory().c_str()) == 0);
  const Refusal refusal = refusal_of(RunDirectory::open(fabric.config.fabric_directory()));
  CHECK(refusal.error == EPERM);
  CHECK(mentions(refusal, "symbolic link"));
}

TEST_CASE("a lock file that is a symbolic link is not followed") {
  TemporaryFabric fabric;
  const RunDirectory directory = open_directory(fabric);
  REQUIRE(symlinkat("../planted", directory.slots_fd(), "001") == 0);
  CHECK(claim(directory)->slot() == 2);
  CHECK(access((directory.path() + "/planted").c_str(), F_OK) != 0);
}

TEST_CASE("a device name and a process stand with each held slot") {
  TemporaryFabric fabric;
  const RunDirectory directory = open_directory(fabric);
  CHECK(list_held_slots(directory).value().empty());
  const auto first = claim(directory, "uroce0");
  const auto second = claim(directory, "uroce1");
  const auto holders = list_held_slots(directory).value();
  REQUIRE(holders.size() == 2);
  CHECK(holders[0].slot == first->slot());
  CHECK(holders[0].device == "uroce0");
  CHECK(holders[1].device == "uroce1");
  CHECK(holders[1].pid == getpid());
  CHECK(holders[1].command == "fabric-test");
  CHECK(holders[1].generation == second->generation());
}

TEST_CASE("slots are reused least recently freed first, each time with a new generation") {
  TemporaryFabric fabric;
  const RunDirectory directory = open_directory(fabric);
  std::vector<std::unique_ptr<SlotClaim>> all;
  for (size_t slot = 1; slot < kSlotCount; ++slot) {
    all.push_back(claim(directory));
    CHECK(all.back()->slot() == slot);
  }
  auto none = SlotClaim::claim(directory, "uroce0");
  REQUIRE_FALSE(none.ok());
  CHECK(none.refusal().error == ENOSPC);
  CHECK(mentions(none.refusal(), "255"));
  const uint32_t generation = all[6]->generation();
  for (const size_t slot : {7, 3, 200}) all[slot - 1].reset();
  for (const uint8_t slot : {uint8_t{7}, uint8_t{3}, uint8_t{200}}) {
    all.push_back(claim(directory));
    CHECK(all.back()->slot() == slot);
  }
  CHECK(all[kSlotCount - 1]->generation() == generation + 1);
}

TEST_CASE("a slot is free after kill -9 of its holder, and goes behind slots freed before") {
  TemporaryFabric fabric;
  const RunDirectory directory = open_directory(fabric);
  ChildProcess child([&](auto say) {
    auto held = SlotClaim::claim(directory, "uroce0");
    say(held.ok() ? (*held)->slot() : 0);
    pause();
  });
  REQUIRE(child.listen() == 1);
  const auto mine = claim(directory);
  CHECK(mine->slot() == 2);
  const auto holders = list_held_slots(directory).value();
  REQUIRE(holders.size() == 2);
  CHECK(holders[0].pid == child.pid());
  child.kill_now();
  CHECK(list_held_slots(directory).value().size() == 1);
  const auto next = claim(directory);
  CHECK(next->slot() == 3);
}

TEST_CASE("a forked child does not hold its parent's slot, and does not free it") {
  TemporaryFabric fabric;
  const RunDirectory directory = open_directory(fabric);
  auto mine = claim(directory);
  ChildProcess child([&](auto say) {
    mine->abandon_in_child();
    mine.reset();
    const auto holders = list_held_slots(directory);
    say(static_cast<uint8_t>(holders.value().size()));
    auto own = SlotClaim::claim(directory, "uroce0");
    say(own.ok() ? (*own)->slot() : 0);
    pause();
  });
  CHECK(child.listen() == 1);
  CHECK(child.listen() == 2);
  REQUIRE(list_held_slots(directory).value().size() == 2);
  mine.reset();
  const auto holders = list_held_slots(directory).value();
  REQUIRE(holders.size() == 1);
  CHECK(holders[0].slot == 2);
}

TEST_CASE("looking at slots does not drop the locks of one's own") {
  TemporaryFabric fabric;
  const RunDirectory directory = open_directory(fabric);
  const auto mine = claim(directory);
  (void)list_held_slots(directory);
  const auto other = claim(directory);
  ChildProcess child([&](auto say) {
    mine->abandon_in_child();
    say(static_cast<uint8_t>(list_held_slots(directory).value().size()));
  });
  CHECK(child.listen() == 2);
}

TEST_CASE("a table of another version is refused while its users live, and replaced afterwards") {
  TemporaryFabric fabric;
  const RunDirectory directory = open_directory(fabric);
  auto mine = claim(directory);
  SlotTableHeader foreign{};
  foreign.magic = SlotTableHeader::kMagic;
  foreign.protocol_version = kFabricProtocolVersion + 1;
  std::strcpy(foreign.build, "uroce 9.9");
  std::fstream file(directory.path() + "/slot-table", std::ios::in | std::ios::out);
  file.write(reinterpret_cast<const char*>(&foreign), sizeof foreign);
  file.close();
  auto refused = SlotClaim::claim(directory, "uroce0");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.refusal().error == EPROTO);
  CHECK(mentions(refused.refusal(), "uroce 9.9"));
  CHECK(mentions(refused.refusal(), build_name()));
  CHECK_FALSE(list_held_slots(directory).ok());
  mine.reset();
  CHECK(claim(directory)->slot() == 1);
}

TEST_CASE("a truncated table does not block a restart") {
  TemporaryFabric fabric;
  const RunDirectory directory = open_directory(fabric);
  (void)claim(directory);
  REQUIRE(truncate((directory.path() + "/slot-table").c_str(), 100) == 0);
  CHECK(claim(directory)->slot() == 1);
}

}  // namespace uroce::datapath
