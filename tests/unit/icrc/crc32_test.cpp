// Every CRC engine against the bitwise reference.
#include "icrc/crc32.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/icrc/reference.hpp"

namespace uroce::icrc {
namespace {

using tests::reference_crc;
using Bytes = std::vector<std::byte>;

constexpr size_t kLongest = 600;
constexpr uint32_t kSomeState = 0x9d3c71a4;

Bytes pattern(size_t size, uint32_t seed = 1) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

std::vector<Engine> supported_engines() {
  std::vector<Engine> engines;
  for (const Engine engine : {Engine::kPortable, Engine::kPclmulqdq, Engine::kVpclmulqdq}) {
    if (supported(engine)) {
      engines.push_back(engine);
    }
  }
  return engines;
}

// All alignments near the ends of a cache line, fewer between.
constexpr size_t kAlignments[] = {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 62, 63};

// A 64-byte aligned place inside `storage` that has `size` + 64 bytes.
std::byte* aligned_place(Bytes& storage, size_t size) {
  storage.resize(size + 128);
  return storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;
}

TEST_CASE("the reference gives the published check value of CRC-32") {
  const std::string check = "123456789";
  CHECK(~reference_crc(~0u, std::as_bytes(std::span(check))) == 0xCBF43926);
}

TEST_CASE("every engine gives the published check value of CRC-32") {
  const std::string check = "123456789";
  for (const Engine engine : supported_engines()) {
    INFO(name_of(engine));
    CHECK(~update_with(engine, ~0u, std::as_bytes(std::span(check))) == 0xCBF43926);
    CHECK(~update_with(engine, ~0u, std::as_bytes(std::span(check).first(8))) != 0xCBF43926);
  }
}

TEST_CASE("every engine equals the reference at each length and alignment") {
  const Bytes data = pattern(kLongest);
  Bytes storage;
  std::byte* const place = aligned_place(storage, kLongest);
  uint32_t expected[kLongest + 1];
  expected[0] = kSomeState;
  for (size_t size = 1; size <= kLongest; ++size) {
    expected[size] = reference_crc(expected[size - 1], std::span(data).subspan(size - 1, 1));
  }
  for (const size_t alignment : kAlignments) {
    std::memcpy(place + alignment, data.data(), kLongest);
    for (const Engine engine : supported_engines()) {
      for (size_t size = 0; size <= kLongest; ++size) {
        const uint32_t found = update_with(engine, kSomeState, {place + alignment, size});
        if (found != expected[size]) {
          INFO(name_of(engine) << ", " << size << " bytes at " << alignment);
          REQUIRE(found == expected[size]);
        }
      }
    }
  }
}

TEST_CASE("every engine equals the reference over long messages") {
  for (const size_t size : {1023, 1024, 1025, 2047, 4096, 4103, 8191, 65536, 70001}) {
    const Bytes data = pattern(size, static_cast<uint32_t>(size));
    const uint32_t expected = reference_crc(kSomeState, data);
    for (const Engine engine : supported_engines()) {
      INFO(name_of(engine) << ", " << size << " bytes");
      CHECK(update_with(engine, kSomeState, data) == expected);
    }
  }
}

TEST_CASE("every engine starts from any state") {
  const Bytes data = pattern(100);
  for (const Engine engine : supported_engines()) {
    for (const size_t size : {1, 2, 3, 4, 5, 15, 16, 63, 64, 65, 100}) {
      for (int bit = 0; bit < 32; ++bit) {
        INFO(name_of(engine) << ", " << size << " bytes, state bit " << bit);
        const auto message = std::span(data).first(size);
        REQUIRE(update_with(engine, 1u << bit, message) == reference_crc(1u << bit, message));
      }
    }
  }
}

TEST_CASE("a message may be split anywhere") {
  const Bytes data = pattern(kLongest);
  for (const size_t size : {1, 16, 48, 64, 100, 129, 300, 600}) {
    const auto message = std::span(data).first(size);
    const uint32_t expected = reference_crc(kSomeState, message);
    for (const Engine engine : supported_engines()) {
      for (size_t split = 0; split <= size; ++split) {
        const uint32_t first = update_with(engine, kSomeState, message.first(split));
        INFO(name_of(engine) << ", " << size << " bytes split at " << split);
        REQUIRE(update_with(engine, first, message.subspan(split)) == expected);
      }
    }
  }
}

TEST_CASE("every bit of a message matters to every engine") {
  for (const size_t size : {3, 16, 60, 200, 600}) {
    Bytes data = pattern(size);
    for (const Engine engine : supported_engines()) {
      const uint32_t intact = update_with(engine, ~0u, data);
      for (size_t bit = 0; bit < size * 8; ++bit) {
        data[bit / 8] ^= std::byte(1 << bit % 8);
        INFO(name_of(engine) << ", " << size << " bytes, bit " << bit);
        REQUIRE(update_with(engine, ~0u, data) != intact);
        data[bit / 8] ^= std::byte(1 << bit % 8);
      }
    }
  }
}

// Copies with `engine` from one alignment to another, with canaries around the destination.
void check_copy(Engine engine, std::span<const std::byte> message, size_t from, size_t to) {
  constexpr size_t kMargin = 64;
  constexpr std::byte kCanary{0xa5};
  Bytes source_storage;
  std::byte* const source = aligned_place(source_storage, message.size()) + from;
  std::memcpy(source, message.data(), message.size());
  Bytes area_storage;
  std::byte* const area = aligned_place(area_storage, message.size() + 2 * kMargin);
  const size_t area_size = message.size() + 2 * kMargin + 64;
  std::memset(area, static_cast<int>(kCanary), area_size);
  std::byte* const destination = area + kMargin + to;

  const uint32_t crc = update_copy_with(engine, kSomeState, destination, source, message.size());
  INFO(name_of(engine) << ", " << message.size() << " bytes from " << from << " to " << to);
  REQUIRE(crc == reference_crc(kSomeState, message));
  REQUIRE(std::memcmp(destination, message.data(), message.size()) == 0);
  REQUIRE(std::memcmp(source, message.data(), message.size()) == 0);
  for (std::byte* at = area; at < area + area_size; ++at) {
    if ((at < destination || at >= destination + message.size()) && *at != kCanary) {
      FAIL("wrote outside, at offset " << at - destination);
    }
  }
}

TEST_CASE("copying equals memcpy and update and writes nothing else") {
  const Bytes data = pattern(4103);
  for (const Engine engine : supported_engines()) {
    for (size_t size = 0; size <= kLongest; ++size) {
      check_copy(engine, std::span(data).first(size), size % 64, (size * 7 + 3) % 64);
    }
    for (const size_t alignment : kAlignments) {
      for (const size_t size : {13, 64, 100, 256, 577, 1024, 4096, 4103}) {
        check_copy(engine, std::span(data).first(size), alignment, 0);
        check_copy(engine, std::span(data).first(size), 0, alignment);
      }
    }
  }
}

TEST_CASE("the CRC covers what was stored when another thread writes the source meanwhile") {
  Bytes source = pattern(130);
  Bytes destination(source.size());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint8_t value = 0; !stop.load(); ++value) {
      std::memset(source.data(), value, source.size());
    }
  });
  size_t wrong = 0;
  for (const Engine engine : supported_engines()) {
    for (size_t round = 0; round < 20; ++round) {
      for (size_t size = 1; size <= source.size(); ++size) {
        const uint32_t crc =
            update_copy_with(engine, kSomeState, destination.data(), source.data(), size);
        wrong += crc == reference_crc(kSomeState, std::span(destination).first(size)) ? 0 : 1;
      }
    }
  }
  stop.store(true);
  writer.join();
  CHECK(wrong == 0);
}

TEST_CASE("engines have the names that the environment variable takes") {
  CHECK(engine_named("portable") == Engine::kPortable);
  CHECK(name_of(Engine::kPortable) == "portable");
  for (const Engine engine : supported_engines()) {
    CHECK(engine_named(name_of(engine)) == engine);
  }
  CHECK_FALSE(engine_named("slicing").has_value());
  CHECK_FALSE(engine_named("").has_value());
}

TEST_CASE("the environment names an engine, and anything else counts as unset") {
  setenv("UROCE_ICRC_ENGINE", "portable", 1);
  CHECK(wanted_by_environment() == Engine::kPortable);
  setenv("UROCE_ICRC_ENGINE", "fast", 1);
  CHECK_FALSE(wanted_by_environment().has_value());
  unsetenv("UROCE_ICRC_ENGINE");
  CHECK_FALSE(wanted_by_environment().has_value());
}

TEST_CASE("the selected engine is the one that serves update and update_copy") {
  CHECK(supported(current()));
  const Bytes data = pattern(777);
  const uint32_t expected = reference_crc(kSomeState, data);
  for (const Engine engine : supported_engines()) {
    select(engine);
    CHECK(current() == engine);
    CHECK(update(kSomeState, data) == expected);
    Bytes copy(data.size());
    CHECK(update_copy(kSomeState, copy.data(), data.data(), data.size()) == expected);
    CHECK(copy == data);
  }
  select(fastest_supported());
}

}  // namespace
}  // namespace uroce::icrc
