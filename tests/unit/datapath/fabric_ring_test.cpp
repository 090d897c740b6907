// The byte ring: order, wrap, fullness, and what a hostile other side can do.
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "datapath/fabric/spsc_ring.hpp"
#include "tests/catch.hpp"

namespace uroce::datapath {

namespace {

constexpr size_t kCapacity = RingLayout::kMinCapacity;

// Zeroed memory and both ends on it.
struct Ring {
  std::vector<uint64_t> memory =
      std::vector<uint64_t>(RingLayout::mapping_bytes(kCapacity) / sizeof(uint64_t));
  std::byte* mapping = reinterpret_cast<std::byte*>(memory.data());
  RingProducer producer{mapping, kCapacity};
  RingConsumer consumer{mapping, kCapacity};

  bool put(size_t size, uint8_t fill) {
    std::byte* const out = producer.reserve(size);
    if (out == nullptr) return false;
    std::memset(out, fill, size);
    producer.commit(size);
    return true;
  }
  // The next frame, or an empty one.
  Frame take() {
    Frame frame;
    return consumer.receive({&frame, 1}) == 1 ? frame : Frame{};
  }
  uint32_t& length_word(size_t offset) {
    return *reinterpret_cast<uint32_t*>(mapping + RingLayout::kDataOffset + offset);
  }
  uint64_t& consumed_word() {
    return *reinterpret_cast<uint64_t*>(mapping + RingLayout::kConsumedOffset);
  }
};

bool is_filled(const Frame& frame, size_t size, uint8_t fill) {
  if (frame.length != size) return false;
  for (size_t i = 0; i < size; ++i) {
    if (frame.data[i] != std::byte{fill}) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("a ring shows frames in order, and none before publish") {
  Ring ring;
  CHECK(ring.put(60, 1));
  CHECK(ring.put(1500, 2));
  CHECK(ring.take().data == nullptr);
  ring.producer.publish();
  CHECK(is_filled(ring.take(), 60, 1));
  CHECK(is_filled(ring.take(), 1500, 2));
  CHECK(ring.take().data == nullptr);
}

TEST_CASE("a second reservation replaces an uncommitted one, and a frame may shrink") {
  Ring ring;
  CHECK(ring.producer.reserve(4000) != nullptr);
  CHECK(ring.put(100, 1));
  std::byte* const out = ring.producer.reserve(4000);
  std::memset(out, 2, 20);
  ring.producer.commit(20);
  ring.producer.publish();
  CHECK(is_filled(ring.take(), 100, 1));
  CHECK(is_filled(ring.take(), 20, 2));
  CHECK(ring.take().data == nullptr);
}

TEST_CASE("frames of all sizes survive many wraps of a ring") {
  Ring ring;
  std::mt19937 random(1);
  std::vector<std::pair<size_t, uint8_t>> sent;
  size_t taken = 0;
  for (int round = 0; round < 2000; ++round) {
    const size_t burst = random() % 8;
    for (size_t i = 0; i < burst; ++i) {
      const size_t size = RingLayout::kMinFrame + random() % 6000;
      const auto fill = static_cast<uint8_t>(random());
      if (ring.put(size, fill)) sent.push_back({size, fill});
    }
    ring.producer.publish();
    const size_t wanted = random() % 10;
    for (size_t i = 0; i < wanted && taken < sent.size(); ++i, ++taken) {
      REQUIRE(is_filled(ring.take(), sent[taken].first, sent[taken].second));
    }
    ring.consumer.release();
  }
  for (; taken < sent.size(); ++taken) {
    REQUIRE(is_filled(ring.take(), sent[taken].first, sent[taken].second));
  }
  CHECK(sent.size() > 5000);
  CHECK(ring.take().data == nullptr);
  CHECK_FALSE(ring.consumer.broken());
  CHECK_FALSE(ring.producer.broken());
}

TEST_CASE("a full ring refuses, and takes frames again after release") {
  Ring ring;
  size_t sent = 0;
  while (ring.put(4000, static_cast<uint8_t>(sent))) ++sent;
  CHECK(sent == kCapacity / RingLayout::record_bytes(4000));
  ring.producer.publish();
  CHECK_FALSE(ring.producer.drained());
  for (size_t i = 0; i < sent; ++i) {
    CHECK(is_filled(ring.take(), 4000, static_cast<uint8_t>(i)));
    CHECK_FALSE(ring.put(4000, 0));  // received is not released
  }
  ring.consumer.release();
  CHECK(ring.producer.drained());
  CHECK(ring.put(4000, 9));
  CHECK_FALSE(ring.producer.broken());
}

TEST_CASE("a frame above the limit of a ring is refused") {
  Ring ring;
  CHECK(ring.producer.reserve(RingLayout::kMaxFrame) != nullptr);
  CHECK(ring.producer.reserve(RingLayout::kMaxFrame + 1) == nullptr);
  CHECK_FALSE(ring.producer.broken());
}

TEST_CASE("a consumer survives any length that a hostile producer writes") {
  const uint32_t bad_first =
      GENERATE(uint32_t{1}, uint32_t{RingLayout::kMinFrame - 1},
               uint32_t{RingLayout::kMaxFrame + 1}, uint32_t{0x80000000}, RingLayout::kWrap);
  Ring ring;
  ring.length_word(0) = bad_first;
  CHECK(ring.take().data == nullptr);
  CHECK(ring.consumer.broken());
  CHECK(ring.take().data == nullptr);
}

TEST_CASE("frames before a bad record are delivered, none after it") {
  Ring ring;
  REQUIRE(ring.put(60, 1));
  REQUIRE(ring.put(60, 2));
  REQUIRE(ring.put(60, 3));
  ring.producer.publish();
  ring.length_word(RingLayout::record_bytes(60)) = 0x7fffffff;
  std::array<Frame, 8> frames;
  CHECK(ring.consumer.receive(frames) == 1);
  CHECK(is_filled(frames[0], 60, 1));
  CHECK(ring.consumer.broken());
  CHECK(ring.consumer.receive(frames) == 0);
}

TEST_CASE("a record that would pass the end of a ring is refused") {
  Ring ring;
  size_t offset = 0;
  while (offset + RingLayout::record_bytes(8000) <= kCapacity) {
    ring.length_word(offset) = 8000;
    offset += RingLayout::record_bytes(8000);
  }
  ring.length_word(offset) = 8000;
  std::array<Frame, 64> frames;
  CHECK(ring.consumer.receive(frames) == offset / RingLayout::record_bytes(8000));
  CHECK(ring.consumer.broken());
}

TEST_CASE("a ring that never ends is cut off after its capacity") {
  Ring ring;
  const size_t record =
      RingLayout::record_bytes(RingLayout::kRecordAlignment * 2 - RingLayout::kRecordHeader + 64);
  for (size_t offset = 0; offset + record <= kCapacity; offset += record) {
    ring.length_word(offset) = static_cast<uint32_t>(record - RingLayout::kRecordHeader);
    if (offset + 2 * record > kCapacity && offset + record < kCapacity) {
      ring.length_word(offset + record) = RingLayout::kWrap;
    }
  }
  std::vector<Frame> frames(kCapacity);
  CHECK(ring.consumer.receive(frames) <= kCapacity / record);
  CHECK(ring.consumer.broken());
}

TEST_CASE("a producer gives up on a consumer whose index is impossible") {
  Ring ring;
  while (ring.put(4000, 1)) {
  }
  ring.producer.publish();
  SECTION("beyond what was written") {
    ring.consumed_word() = 1 << 30;
  }
  SECTION("backwards") {
    (void)ring.take();
    ring.consumer.release();
    CHECK_FALSE(ring.producer.drained());  // the index is seen
    ring.consumed_word() = 0;
  }
  CHECK_FALSE(ring.put(8000, 1));
  CHECK(ring.producer.broken());
  CHECK(ring.producer.drained());  // nothing is left to wait for
  ring.consumed_word() = 0;
  CHECK_FALSE(ring.put(8000, 1));
}

TEST_CASE("two threads pass a million numbers through a ring, none lost, none twice", "[threads]") {
  Ring ring;
  constexpr uint64_t kFrames = 1'000'000;
  std::thread sender([&ring] {
    for (uint64_t i = 0; i < kFrames; ++i) {
      const size_t size = 24 + i % 97;
      std::byte* out = nullptr;
      while ((out = ring.producer.reserve(size)) == nullptr) {
        ring.producer.publish();
        std::this_thread::yield();
      }
      std::memcpy(out, &i, sizeof i);
      std::memcpy(out + size - sizeof i, &i, sizeof i);
      ring.producer.commit(size);
      if (i % 7 == 0) ring.producer.publish();
    }
    ring.producer.publish();
  });
  uint64_t expected = 0, wrong = 0;
  std::array<Frame, 32> frames;
  while (expected < kFrames && !ring.consumer.broken()) {
    const size_t count = ring.consumer.receive(frames);
    for (size_t i = 0; i < count; ++i, ++expected) {
      uint64_t first = 0, last = 0;
      std::memcpy(&first, frames[i].data, sizeof first);
      std::memcpy(&last, frames[i].data + frames[i].length - sizeof last, sizeof last);
      if (first != expected || last != expected || frames[i].length != 24 + expected % 97) ++wrong;
    }
    ring.consumer.release();
    if (count == 0) std::this_thread::yield();
  }
  sender.join();
  CHECK(expected == kFrames);
  CHECK(wrong == 0);
  CHECK(ring.take().data == nullptr);
}

}  // namespace uroce::datapath
