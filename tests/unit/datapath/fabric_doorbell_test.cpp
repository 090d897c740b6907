// Doorbells: a sleeping receiver is woken once, and never sleeps through a frame.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/datapath/fabric_fixture.hpp"

namespace uroce::datapath {

namespace {

constexpr int64_t kPatience = 10'000'000'000;
using SteadyClock = std::chrono::steady_clock;

// Two devices of this process, the first with a path to the second.
struct Pair {
  TemporaryFabric fabric;
  std::unique_ptr<Wire> a = fabric.open(0);
  std::unique_ptr<Wire> b = fabric.open(1);
  Qpn to_b = Qpn::of(b->slot(), 1);
  std::unique_ptr<Path> path = std::move(a->open_path(fabric.address(0, 1), to_b).value());

  Pair() { REQUIRE(a->wait_resolved(*path, kPatience)); }
};

}  // namespace

TEST_CASE("a sleeping receiver is woken by a frame, with one FUTEX_WAKE per sleep") {
  Pair pair;
  std::atomic<bool> armed{false}, woken{false};
  std::thread sleeper([&] {
    pair.b->arm();
    armed = true;
    pair.b->sleep(kPatience);
    woken = true;
  });
  while (!armed) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    CHECK(send_text(*pair.a, *pair.path, pair.to_b, "x"));
    pair.a->flush();
    CHECK_FALSE(pair.a->kick());
  }
  sleeper.join();
  CHECK(woken);
  CHECK(pair.a->counters().kicks == 1);
}

TEST_CASE("a receiver whose threads poll is not woken, but watched until it has the frame") {
  Pair pair;
  pair.b->arm();
  pair.b->note_polled();
  CHECK(send_text(*pair.a, *pair.path, pair.to_b, "x"));
  pair.a->flush();
  const uint64_t kicks = pair.a->counters().kicks;
  SECTION("it takes the frame") {
    CHECK(receive_texts(*pair.b).size() == 1);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    CHECK_FALSE(pair.a->kick());
    CHECK(pair.a->counters().kicks == kicks);
  }
  SECTION("it turns away") {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    CHECK_FALSE(pair.a->kick());
    CHECK(pair.a->counters().kicks == 1);
  }
}

TEST_CASE("an unarmed receiver is never woken") {
  Pair pair;
  CHECK(send_text(*pair.a, *pair.path, pair.to_b, "x"));
  pair.a->flush();
  CHECK_FALSE(pair.a->kick());
  CHECK(pair.a->counters().kicks == 0);
}

TEST_CASE("a sleep ends after its time, when woken by its own process, and at once if unarmed") {
  Pair pair;
  pair.a->disarm();
  pair.a->sleep(kPatience);
  pair.a->arm();
  const auto before = SteadyClock::now();
  pair.a->sleep(20'000'000);
  CHECK(SteadyClock::now() - before >= std::chrono::milliseconds(20));
  std::thread waker([&] { pair.a->wake(); });
  pair.a->sleep(kPatience);
  waker.join();
  CHECK(SteadyClock::now() - before < std::chrono::nanoseconds(kPatience));
}

TEST_CASE("a peer on the same CPU is recognised") {
  Pair pair;
  CHECK_FALSE(pair.b->peer_shares_cpu(-2));
  (void)receive_texts(*pair.b);  // takes the connection in
  CHECK(pair.b->peer_shares_cpu(-1));
  pair.a->note_polled();
  CHECK_FALSE(pair.b->peer_shares_cpu(-1));
}

TEST_CASE("no frame is slept through", "[threads]") {
  Pair pair;
  constexpr auto kStress = std::chrono::seconds(1);
  std::atomic<uint64_t> consumed{0};
  std::atomic<bool> stop{false}, overslept{false};
  std::thread receiver([&] {
    std::array<Frame, 8> frames;
    while (!stop) {
      pair.b->arm();
      size_t count = pair.b->receive(frames);
      if (count == 0) {
        const auto before = SteadyClock::now();
        pair.b->sleep(kPatience);
        if (SteadyClock::now() - before > std::chrono::nanoseconds(kPatience / 2)) overslept = true;
        count = pair.b->receive(frames);
      }
      pair.b->disarm();
      pair.b->release();
      consumed += count;
    }
  });
  uint64_t sent = 0;
  const auto end = SteadyClock::now() + kStress;
  while (SteadyClock::now() < end) {
    REQUIRE(send_text(*pair.a, *pair.path, pair.to_b, "x"));
    pair.a->flush();
    ++sent;
    // A receiver that slept through it leaves this waiting for its ten seconds.
    while (consumed != sent) {
      pair.a->kick();
      std::this_thread::yield();
    }
    // Meets the receiver at every stage of falling asleep.
    for (uint64_t spin = 0; spin < sent % 500; ++spin)
      std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  stop = true;
  pair.b->wake();
  receiver.join();
  CHECK_FALSE(overslept);
  CHECK(sent > 100);
}

}  // namespace uroce::datapath
