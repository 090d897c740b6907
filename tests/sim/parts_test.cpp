// The simulator's own parts: clock, link, memory model, ledger of ATOMICs.
#include <cstring>
#include <vector>

#include "tests/catch.hpp"
#include "tools/sim/atomic_ledger.hpp"
#include "tools/sim/link.hpp"
#include "tools/sim/memory.hpp"
#include "tools/sim/virtual_clock.hpp"

namespace uroce::sim {
namespace {

std::vector<std::byte> bytes_of_text(const char* text) {
  std::vector<std::byte> bytes(std::strlen(text));
  std::memcpy(bytes.data(), text, bytes.size());
  return bytes;
}

Frame frame_of(uint8_t source) {
  Frame frame;
  frame.source = source;
  frame.bytes.resize(16);
  return frame;
}

// Sends ten frames from host 0 and says which numbers arrive, in order.
std::vector<uint64_t> arrivals(const LinkProfile& profile, uint64_t seed) {
  VirtualClock clock;
  std::vector<uint64_t> numbers;
  Link link(
      clock, profile, Random(seed), [&](Frame frame) { numbers.push_back(frame.number); },
      [](uint8_t) {});
  for (int i = 0; i < 10; ++i) link.send(frame_of(0));
  while (clock.step()) {
  }
  return numbers;
}

constexpr AtomicLedger::Entry add(uint32_t requester, uint64_t operand,
                                  std::optional<uint64_t> original) {
  return {requester, false, operand, 0, original};
}
constexpr AtomicLedger::Entry swap(uint32_t requester, uint64_t compare, uint64_t value,
                                   std::optional<uint64_t> original) {
  return {requester, true, compare, value, original};
}

}  // namespace

TEST_CASE("the virtual clock runs actions by time, then by order of scheduling", "[parts]") {
  VirtualClock clock;
  std::vector<int> order;
  clock.schedule(Instant{20}, [&] { order.push_back(3); });
  clock.schedule(Instant{10}, [&] { order.push_back(1); });
  clock.schedule(Instant{10}, [&] {
    order.push_back(2);
    clock.schedule(Instant{0}, [&] { order.push_back(9); });  // the past is now
  });
  while (clock.step()) {
  }
  CHECK(order == std::vector<int>{1, 2, 9, 3});
  CHECK(clock.now() == Instant{20});
  CHECK_FALSE(clock.step());
}

TEST_CASE("a perfect link delivers every frame once, in order", "[parts]") {
  CHECK(arrivals({}, 1) == std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("a link loses, duplicates and reorders as its profile says", "[parts]") {
  LinkProfile lossy;
  lossy.loss = kMillion;
  CHECK(arrivals(lossy, 1).empty());
  LinkProfile doubling;
  doubling.duplication = kMillion;
  CHECK(arrivals(doubling, 1).size() == 20);
  LinkProfile shuffling;
  shuffling.reordering = kMillion / 2;
  shuffling.reorder_ns = 100'000;
  const auto shuffled = arrivals(shuffling, 1);
  CHECK(shuffled.size() == 10);
  CHECK_FALSE(std::is_sorted(shuffled.begin(), shuffled.end()));
  LinkProfile masked;
  masked.masked_frames = 12;
  masked.loss_mask = 0b10'0000'0101;
  CHECK(arrivals(masked, 1) == std::vector<uint64_t>{1, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("a bounded link refuses when it is full and says when it has room", "[parts]") {
  VirtualClock clock;
  LinkProfile profile;
  profile.capacity = 2;
  int rooms = 0;
  Link link(
      clock, profile, Random(1), [](Frame) {}, [&](uint8_t source) { rooms += source == 0; });
  REQUIRE(link.has_room(0));
  link.send(frame_of(0));
  link.send(frame_of(0));
  CHECK_FALSE(link.has_room(0));
  CHECK(link.has_room(1));
  while (clock.step()) {
  }
  CHECK(rooms == 1);
  CHECK(link.has_room(0));
}

TEST_CASE("a blackhole swallows the frames of one queue pair", "[parts]") {
  VirtualClock clock;
  int arrived = 0;
  Link link(
      clock, {}, Random(1), [&](Frame) { ++arrived; }, [](uint8_t) {});
  link.open_blackhole(Qpn{0});
  CHECK(link.send(frame_of(0)) == kBlackholed);
  link.close_blackhole(Qpn{0});
  CHECK(link.send(frame_of(0)) == kDelivered);
  while (clock.step()) {
  }
  CHECK(arrived == 1);
}

TEST_CASE("the memory model finds a byte that nobody was allowed to write", "[parts]") {
  Memory memory(256, Random(1));
  CHECK_FALSE(memory.check_all());
  *memory.at(100) ^= std::byte{1};
  CHECK(memory.check_all());
  CHECK(memory.check(100, 1));
  CHECK_FALSE(memory.check(0, 100));
}

TEST_CASE("a pending effect allows the old bytes and the new, nothing else", "[parts]") {
  Memory memory(256, Random(1));
  const auto text = bytes_of_text("abcd");
  const auto effect = memory.expect(8, 4, text.data());
  CHECK_FALSE(memory.check_all());
  std::memcpy(memory.at(8), text.data(), 2);  // half of it
  CHECK_FALSE(memory.check_all());
  SECTION("committed, all of it must be there") {
    memory.commit(effect);
    CHECK(memory.check(8, 4));
    std::memcpy(memory.at(8), text.data(), 4);
    CHECK_FALSE(memory.check_all());
  }
  SECTION("settled, what is there stays") {
    CHECK_FALSE(memory.settle(effect));
    CHECK_FALSE(memory.check_all());
    std::memcpy(memory.at(8), text.data(), 4);
    CHECK(memory.check_all());
  }
  SECTION("another value is found") {
    *memory.at(11) = static_cast<std::byte>(std::to_integer<int>(*memory.at(11)) ^ 0x80);
    CHECK(memory.check_all());
    CHECK(memory.settle(effect));
  }
}

TEST_CASE("a pool lends buffers that do not touch each other", "[parts]") {
  Pool pool(64, 128);
  const auto first = pool.allocate(20, 8);
  const auto second = pool.allocate(20, 1);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(*first % 8 == 0);
  CHECK(*second % 2 == 1);
  CHECK(*second >= *first + 20 + Pool::kGap);
  CHECK_FALSE(pool.allocate(64, 1));
  pool.release(*first);
  CHECK(pool.allocate(20, 8) == first);
}

TEST_CASE("a ledger accepts ATOMICs that happened once each in some order", "[parts]") {
  AtomicLedger ledger(100);
  ledger.add(add(1, 5, 107));
  ledger.add(add(2, 7, 100));
  ledger.add(swap(2, 112, 40, 112));
  ledger.add(swap(1, 3, 4, 40));  // did not match: changed nothing
  CHECK_FALSE(ledger.check(40));
  CHECK(ledger.check(41));
}

TEST_CASE("a ledger refuses a lost, repeated or reordered ATOMIC", "[parts]") {
  AtomicLedger lost(100);
  lost.add(add(1, 5, 100));
  lost.add(add(2, 7, 100));  // both found 100
  CHECK(lost.check(112));
  AtomicLedger repeated(100);
  repeated.add(add(1, 5, 100));
  CHECK(repeated.check(110));
  AtomicLedger reordered(100);
  reordered.add(add(1, 5, 107));
  reordered.add(add(1, 7, 100));  // posted second, executed first
  CHECK(reordered.check(112));
}

TEST_CASE("a ledger allows an ATOMIC of unknown outcome to have happened or not", "[parts]") {
  AtomicLedger ledger(100);
  ledger.add(add(1, 5, std::nullopt));
  CHECK_FALSE(ledger.check(100));
  CHECK_FALSE(ledger.check(105));
  CHECK(ledger.check(110));
}

}  // namespace uroce::sim
