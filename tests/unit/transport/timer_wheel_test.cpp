// The wheel against a sorted map, over steps, jumps and cancellations.
#include "transport/timer_wheel.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.hpp"

using namespace uroce;
using namespace uroce::transport;

namespace {

std::vector<TimerNode*> pop_all(TimerWheel& wheel, int64_t now) {
  std::vector<TimerNode*> expired;
  while (TimerNode* node = wheel.pop_expired({now})) expired.push_back(node);
  return expired;
}

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("a timer expires at its nanosecond, once, and not before") {
  const auto wheel = std::make_unique<TimerWheel>();
  TimerNode node;
  wheel->arm(node, {1'000'000});
  CHECK(node.armed());
  CHECK(node.deadline() == Instant{1'000'000});
  CHECK(wheel->next_deadline() == Instant{1'000'000});
  CHECK(pop_all(*wheel, 999'999).empty());
  CHECK(pop_all(*wheel, 1'000'000) == std::vector{&node});
  CHECK_FALSE(node.armed());
  CHECK(pop_all(*wheel, 2'000'000).empty());
  CHECK(wheel->next_deadline() == Instant::never());
}

TEST_CASE("an empty wheel has no deadline") {
  const auto wheel = std::make_unique<TimerWheel>();
  CHECK(wheel->next_deadline() == Instant::never());
  CHECK(wheel->pop_expired({kSecond}) == nullptr);
}

TEST_CASE("a cancelled timer does not expire, and cancelling twice is nothing") {
  const auto wheel = std::make_unique<TimerWheel>();
  TimerNode node, other;
  wheel->arm(node, {1000});
  wheel->arm(other, {1000});
  wheel->cancel(node);
  wheel->cancel(node);
  CHECK_FALSE(node.armed());
  CHECK(pop_all(*wheel, kSecond) == std::vector{&other});
}

TEST_CASE("arming an armed timer moves it") {
  const auto wheel = std::make_unique<TimerWheel>();
  TimerNode node;
  wheel->arm(node, {1000});
  wheel->arm(node, {5'000'000});
  CHECK(pop_all(*wheel, 4'999'999).empty());
  CHECK(wheel->next_deadline() == Instant{5'000'000});
  CHECK(pop_all(*wheel, 5'000'000) == std::vector{&node});
}

TEST_CASE("a deadline in the past expires at the next pop") {
  const auto wheel = std::make_unique<TimerWheel>();
  TimerNode node;
  CHECK(wheel->pop_expired({kSecond}) == nullptr);
  wheel->arm(node, {5});
  CHECK(wheel->next_deadline() <= Instant{kSecond});
  CHECK(pop_all(*wheel, kSecond) == std::vector{&node});
}

TEST_CASE("timers of later revolutions stay when their slot passes") {
  const auto wheel = std::make_unique<TimerWheel>();
  constexpr int64_t kRevolution = int64_t{TimerWheel::kSlots} << TimerWheel::kTickShift;
  TimerNode soon, late, later;
  wheel->arm(later, {kRevolution * 5 + 100});
  wheel->arm(late, {kRevolution + 100});
  wheel->arm(soon, {100});
  CHECK(pop_all(*wheel, 100) == std::vector{&soon});
  CHECK(pop_all(*wheel, kRevolution + 99).empty());
  CHECK(pop_all(*wheel, kRevolution + 100) == std::vector{&late});
  CHECK(pop_all(*wheel, kRevolution * 5 + 100) == std::vector{&later});
}

TEST_CASE("a clock that jumps for hours expires everything that is due and nothing else") {
  const auto wheel = std::make_unique<TimerWheel>();
  std::vector<TimerNode> nodes(100);
  for (size_t i = 0; i < nodes.size(); ++i) {
    wheel->arm(nodes[i], {static_cast<int64_t>(i + 1) * 60 * kSecond + static_cast<int64_t>(i)});
  }
  CHECK(pop_all(*wheel, 50 * 60 * kSecond + 49).size() == 50);
  CHECK(pop_all(*wheel, int64_t{1} << 60).size() == 50);
}

TEST_CASE("a caller may arm and cancel any timer between pops") {
  const auto wheel = std::make_unique<TimerWheel>();
  TimerNode first, second, third;
  wheel->arm(first, {1000});
  wheel->arm(second, {1000});
  TimerNode* const popped = wheel->pop_expired({2000});
  TimerNode* const left = popped == &first ? &second : &first;
  wheel->cancel(*left);
  wheel->arm(third, {1500});
  wheel->arm(*popped, {kSecond});
  CHECK(pop_all(*wheel, 2000) == std::vector{&third});
  CHECK(pop_all(*wheel, kSecond) == std::vector{popped});
}

TEST_CASE("following next_deadline reaches a far timer in few steps") {
  const auto wheel = std::make_unique<TimerWheel>();
  TimerNode node;
  const Instant deadline{10 * kSecond};
  wheel->arm(node, deadline);
  TimerNode nearer;
  wheel->arm(nearer, {1000});
  wheel->cancel(nearer);
  int steps = 0;
  Instant now{0};
  while (node.armed()) {
    REQUIRE(wheel->next_deadline() <= deadline);
    REQUIRE(now < wheel->next_deadline());
    now = wheel->next_deadline();
    pop_all(*wheel, now.ns);
    REQUIRE(++steps < 200);
  }
  CHECK(now == deadline);
}

TEST_CASE("a crowd of far timers neither hides a near one nor stops the clock") {
  const auto wheel = std::make_unique<TimerWheel>();
  std::vector<TimerNode> crowd(5000);
  for (size_t i = 0; i < crowd.size(); ++i) {
    wheel->arm(crowd[i], {8 * kSecond + static_cast<int64_t>(i) * 13'000});
  }
  TimerNode near;
  wheel->arm(near, {30'000'000});
  Instant now{0};
  while (near.armed()) {
    REQUIRE(wheel->next_deadline() > now);
    REQUIRE(wheel->next_deadline() <= Instant{30'000'000});
    now = wheel->next_deadline();
    const size_t popped = pop_all(*wheel, now.ns).size();
    REQUIRE(popped == (near.armed() ? 0 : 1));
  }
  CHECK(now == Instant{30'000'000});
}

TEST_CASE("the wheel agrees with a sorted list over random histories") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto wheel = std::make_unique<TimerWheel>();
    std::vector<TimerNode> nodes(40);
    int64_t now = static_cast<int64_t>(random() % kSecond);
    for (int step = 0; step < 2000; ++step) {
      TimerNode& node = nodes[random() % nodes.size()];
      const auto span = int64_t{1} << random() % 34;
      if (random() % 4 == 0) {
        wheel->cancel(node);
      } else {
        wheel->arm(node, {now + static_cast<int64_t>(random() % static_cast<uint64_t>(span))});
      }
      Instant earliest = Instant::never();
      for (const TimerNode& each : nodes) {
        if (each.armed()) earliest = std::min(earliest, each.deadline());
      }
      REQUIRE(wheel->next_deadline() <= earliest);
      if (random() % 3 != 0) continue;
      now += static_cast<int64_t>(random() % static_cast<uint64_t>(int64_t{1} << random() % 34));
      size_t due = 0;
      for (const TimerNode& each : nodes) due += each.armed() && each.deadline().ns <= now;
      const std::vector<TimerNode*> expired = pop_all(*wheel, now);
      REQUIRE(expired.size() == due);
      for (const TimerNode* each : expired) REQUIRE(each->deadline().ns <= now);
      REQUIRE(wheel->next_deadline() > Instant{now});
    }
  }
}
