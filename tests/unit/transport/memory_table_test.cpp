// Keys, ranges and rights, with a negative test for each check.
#include "transport/memory_table.hpp"

#include <cerrno>
#include <set>

#include "tests/catch.hpp"

using namespace uroce;
using namespace uroce::transport;

namespace {

constexpr PdId kPd{1};
constexpr AccessFlags kAll = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;

std::byte* at(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);
}

RegionAttributes region(uint64_t address, uint64_t length, AccessFlags access = kAll) {
  return {.pd = kPd, .address = at(address), .length = length, .iova = address, .access = access};
}

MemoryRefusal refusal(const MemoryTable& table, uint32_t key, MemoryRange range,
                      AccessFlags needed = 0, PdId pd = kPd) {
  const MemoryGrant local = table.check_local(Lkey{key}, pd, range, needed);
  const MemoryGrant remote = table.check_remote(Rkey{key}, pd, range, needed);
  CHECK(local.refusal == remote.refusal);
  CHECK(local.address == remote.address);
  CHECK((local.address == nullptr || local.ok()));
  return local.refusal;
}

}  // namespace

TEST_CASE("a registered range is granted as a pointer to its first byte") {
  MemoryTable table({}, 1);
  const uint32_t key = *table.register_region(region(0x10000, 0x1000));
  CHECK(table.check_local({key}, kPd, {0x10000, 0x1000}, kLocalWrite).address == at(0x10000));
  CHECK(table.check_remote({key}, kPd, {0x10ffc, 4}, kRemoteWrite).address == at(0x10ffc));
  CHECK(table.check_remote({key}, kPd, {0x11000, 0}, kRemoteRead).ok());
}

TEST_CASE("a range outside its region is refused at either end and around 2^64") {
  MemoryTable table({}, 1);
  const uint32_t key = *table.register_region(region(0x10000, 0x1000));
  using enum MemoryRefusal;
  CHECK(refusal(table, key, {0xffff, 1}) == kOutOfBounds);
  CHECK(refusal(table, key, {0x10000, 0x1001}) == kOutOfBounds);
  CHECK(refusal(table, key, {0x10fff, 2}) == kOutOfBounds);
  CHECK(refusal(table, key, {0x11000, 1}) == kOutOfBounds);
  CHECK(refusal(table, key, {0x11001, 0}) == kOutOfBounds);
  CHECK(refusal(table, key, {0x10001, ~uint64_t{0}}) == kOutOfBounds);
  CHECK(refusal(table, key, {0x10800, 0ull - 0x800}) == kOutOfBounds);
  CHECK(refusal(table, key, {~uint64_t{0}, 2}) == kOutOfBounds);
  CHECK(refusal(table, key, {0, 0x10001}) == kOutOfBounds);
}

TEST_CASE("a region that ends at the last address is wholly usable and no more") {
  MemoryTable table({}, 1);
  const uint32_t key = *table.register_region(region(0ull - 0x1000, 0x1000));
  CHECK(refusal(table, key, {0ull - 0x1000, 0x1000}) == MemoryRefusal::kNone);
  CHECK(refusal(table, key, {0ull - 1, 1}) == MemoryRefusal::kNone);
  CHECK(refusal(table, key, {0ull - 1, 2}) == MemoryRefusal::kOutOfBounds);
  CHECK(refusal(table, key, {0, 1}) == MemoryRefusal::kOutOfBounds);
}

TEST_CASE("keys of a zero-based region count from 0, and iova may be anything") {
  MemoryTable table({}, 1);
  RegionAttributes zero_based = region(0x10000, 0x1000, kAll | kZeroBased);
  zero_based.iova = 0;
  const uint32_t key = *table.register_region(zero_based);
  CHECK(table.check_remote({key}, kPd, {0x10, 4}, kRemoteRead).address == at(0x10010));
  CHECK(refusal(table, key, {0x10000, 4}) == MemoryRefusal::kOutOfBounds);

  RegionAttributes shifted = region(0x10000, 0x1000);
  shifted.iova = 0xffff'0000'0000'0000;
  const uint32_t other = *table.register_region(shifted);
  CHECK(table.check_local({other}, kPd, {0xffff'0000'0000'0fff, 1}, 0).address == at(0x10fff));
  CHECK(refusal(table, other, {0x10000, 4}) == MemoryRefusal::kOutOfBounds);
}

TEST_CASE("a region of another protection domain is refused") {
  MemoryTable table({}, 1);
  const uint32_t key = *table.register_region(region(0x10000, 0x1000));
  CHECK(refusal(table, key, {0x10000, 4}, 0, PdId{2}) == MemoryRefusal::kWrongDomain);
  CHECK(refusal(table, key, {0x10000, 4}, 0, PdId{0}) == MemoryRefusal::kWrongDomain);
}

TEST_CASE("each right must have been granted, and reading locally needs none") {
  for (const AccessFlags right : {kLocalWrite, kRemoteWrite, kRemoteRead, kRemoteAtomic}) {
    MemoryTable table({}, 1);
    const AccessFlags without = right == kLocalWrite ? kRemoteRead : kAll & ~right;
    const uint32_t with_key = *table.register_region(region(0x10000, 64, kAll));
    const uint32_t without_key = *table.register_region(region(0x10000, 64, without));
    CAPTURE(right);
    CHECK(refusal(table, with_key, {0x10000, 8}, right) == MemoryRefusal::kNone);
    CHECK(refusal(table, without_key, {0x10000, 8}, right) == MemoryRefusal::kNoAccess);
    CHECK(refusal(table, without_key, {0x10000, 8}, 0) == MemoryRefusal::kNone);
  }
}

TEST_CASE("a key that was never given out is refused") {
  MemoryTable table({}, 1);
  const uint32_t key = *table.register_region(region(0x10000, 64));
  CHECK(refusal(table, 0, {0x10000, 8}) == MemoryRefusal::kUnknownKey);
  CHECK(refusal(table, 0xffffffff, {0x10000, 8}) == MemoryRefusal::kUnknownKey);
  CHECK(refusal(table, key + 0x100, {0x10000, 8}) == MemoryRefusal::kUnknownKey);
  for (uint32_t other = 1; other < 256; ++other) {
    CHECK(refusal(table, key ^ other, {0x10000, 8}) == MemoryRefusal::kUnknownKey);
  }
}

TEST_CASE("deregistering returns what the key stood for and makes the key unknown") {
  MemoryTable table({}, 1);
  const uint32_t key = *table.register_region(region(0x10000, 64));
  CHECK(table.live_regions() == 1);
  const auto gone = table.deregister_region({key});
  REQUIRE(gone);
  CHECK(gone->pd == kPd);
  CHECK(gone->address == at(0x10000));
  CHECK(gone->length == 64);
  CHECK(table.live_regions() == 0);
  CHECK(refusal(table, key, {0x10000, 8}) == MemoryRefusal::kUnknownKey);
  const auto again = table.deregister_region({key});
  REQUIRE_FALSE(again);
  CHECK(again.refusal().error == EINVAL);
}

TEST_CASE("a stale key hits nothing through a hundred thousand registrations") {
  MemoryTable table({.max_regions = 4}, 3);
  const uint32_t stale = *table.register_region(region(0x10000, 64));
  REQUIRE(table.deregister_region({stale}));
  std::set<uint32_t> seen = {stale};
  for (int i = 0; i < 100'000; ++i) {
    const uint32_t key = *table.register_region(region(0x10000, 64));
    REQUIRE(seen.insert(key).second);
    REQUIRE_FALSE(table.check_remote({stale}, kPd, {0x10000, 8}, 0).ok());
    REQUIRE(table.deregister_region({key}));
  }
}

TEST_CASE("a freed index rests behind all others that were freed before") {
  MemoryTable table({}, 3);
  const uint32_t first = *table.register_region(region(0x10000, 64)) >> 8;
  REQUIRE(table.deregister_region({*table.register_region(region(0x10000, 64))}));
  for (int i = 0; i < 16'000; ++i) {
    const uint32_t key = *table.register_region(region(0x10000, 64));
    REQUIRE(key >> 8 != first);
    REQUIRE(table.deregister_region({key}));
  }
}

TEST_CASE("where keys start depends on the seed alone") {
  const auto first_key = [](uint64_t seed) {
    MemoryTable table({}, seed);
    return *table.register_region(region(0x10000, 64));
  };
  CHECK(first_key(1) == first_key(1));
  std::set<uint32_t> keys;
  for (uint64_t seed = 0; seed < 50; ++seed) keys.insert(first_key(seed));
  CHECK(keys.size() > 45);
  CHECK_FALSE(keys.contains(0));
}

TEST_CASE("as many regions as are advertised can be registered, and one more is refused") {
  const uint32_t most = 40'000;
  MemoryTable table({.max_regions = most}, 5);
  std::set<uint32_t> keys;
  for (uint32_t i = 0; i < most; ++i) {
    const auto key = table.register_region(region(0x10000, 64));
    REQUIRE(key);
    REQUIRE(keys.insert(*key).second);
  }
  const auto refused = table.register_region(region(0x10000, 64));
  REQUIRE_FALSE(refused);
  CHECK(refused.refusal().error == ENOMEM);
  REQUIRE(table.deregister_region({*keys.begin()}));
  CHECK(table.register_region(region(0x10000, 64)).ok());
}

TEST_CASE("registration refuses what IBTA forbids and says why") {
  MemoryTable table({.max_region_bytes = 1 << 20}, 1);
  const auto refused = [&table](const RegionAttributes& attributes) {
    const auto result = table.register_region(attributes);
    REQUIRE_FALSE(result);
    CHECK(result.refusal().error == EINVAL);
    return result.refusal().why;
  };
  const std::string needs_local =
      "reg_mr: REMOTE_WRITE and REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE as well";
  CHECK(refused(region(0x10000, 64, kRemoteWrite)) == needs_local);
  CHECK(refused(region(0x10000, 64, kRemoteAtomic)) == needs_local);
  CHECK(refused(region(0x10000, 64, 1u << 12)) == "reg_mr: unknown access flags 0x1000");
  CHECK(refused(region(0x10000, (1 << 20) + 1)) ==
        "reg_mr: length 1048577 is over max_mr_size 1048576");
  const std::string beyond = "reg_mr: address + length is beyond the end of the address space";
  CHECK(refused(region(0ull - 0x1000, 0x1001)) == beyond);
  RegionAttributes wrapping = region(0x10000, 0x1000);
  wrapping.iova = 0ull - 0xfff;
  CHECK(refused(wrapping) == beyond);
  CHECK(table.live_regions() == 0);
  // Hints that are unknown are no reason to refuse.
  CHECK(table.register_region(region(0x10000, 64, kAll | kRelaxedOrdering | 1u << 29)).ok());
}

TEST_CASE("each reason has a name of its own") {
  using enum MemoryRefusal;
  CHECK(name_of(kUnknownKey) == "unknown key");
  CHECK(name_of(kWrongDomain) == "key of another protection domain");
  CHECK(name_of(kOutOfBounds) == "range outside the region");
  CHECK(name_of(kNoAccess) == "access right missing");
}
