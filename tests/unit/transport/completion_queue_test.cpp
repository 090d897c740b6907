// The completion ring: order, slots, overflow, arming, removal, and two threads at once.
#include "transport/completion_queue.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using namespace uroce;
using namespace uroce::transport;

namespace {

class Recorder : public EventSink {
 public:
  void on_completion_event(CompletionQueue&) override { fired.fetch_add(1); }
  void on_async_event(AsyncEventType type, void* subject) override {
    async.push_back({type, subject});
  }

  std::atomic<int> fired{0};
  std::vector<std::pair<AsyncEventType, void*>> async;
};

CqEntry entry(uint64_t wr_id, uint32_t qpn = 1) {
  CqEntry made;
  made.completion.wr_id = wr_id;
  made.completion.qpn = {qpn};
  return made;
}

std::vector<uint64_t> poll_all(CompletionQueue& cq) {
  std::vector<uint64_t> ids;
  Completion one;
  while (cq.poll({&one, 1}) == 1) ids.push_back(one.wr_id);
  return ids;
}

}  // namespace

TEST_CASE("completions come out in the order in which they went in") {
  Recorder events;
  CompletionQueue cq(8, events, nullptr);
  CHECK(cq.empty());
  for (int lap = 0; lap < 5; ++lap) {
    for (uint64_t id = 0; id < 7; ++id) REQUIRE(cq.push(entry(id)));
    CHECK_FALSE(cq.empty());
    CHECK(poll_all(cq) == std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6});
    CHECK(cq.empty());
  }
}

TEST_CASE("poll takes at most what it has room for, and the rest later") {
  Recorder events;
  CompletionQueue cq(64, events, nullptr);
  for (uint64_t id = 0; id < 50; ++id) REQUIRE(cq.push(entry(id)));
  std::vector<Completion> out(40);
  CHECK(cq.poll({}) == 0);
  CHECK(cq.poll(out) == 40);
  CHECK(out[39].wr_id == 39);
  CHECK(cq.poll(out) == 10);
  CHECK(out[9].wr_id == 49);
  CHECK(cq.poll(out) == 0);
}

TEST_CASE("at least the capacity that was asked for is usable") {
  Recorder events;
  for (uint32_t asked : {1u, 2u, 3u, 100u, 128u}) {
    CompletionQueue cq(asked, events, nullptr);
    CHECK(cq.capacity() >= asked);
    for (uint32_t i = 0; i < cq.capacity(); ++i) REQUIRE(cq.push(entry(i)));
    CHECK_FALSE(cq.overflown());
    CHECK_FALSE(cq.push(entry(0)));
    CHECK(cq.overflown());
  }
}

TEST_CASE("an overflow raises one error event, loses the entry and keeps the others") {
  Recorder events;
  int owner = 0;
  CompletionQueue cq(2, events, &owner);
  REQUIRE(cq.push(entry(1)));
  REQUIRE(cq.push(entry(2)));
  CHECK(events.async.empty());
  CHECK_FALSE(cq.push(entry(3)));
  CHECK_FALSE(cq.push(entry(4)));
  REQUIRE(events.async.size() == 1);
  CHECK(events.async[0].first == AsyncEventType::kCqError);
  CHECK(events.async[0].second == &owner);
  CHECK(poll_all(cq) == std::vector<uint64_t>{1, 2});
  CHECK_FALSE(cq.push(entry(5)));  // the error state stays
  CHECK(poll_all(cq).empty());
  CHECK(events.async.size() == 1);
}

TEST_CASE("polling a completion frees the work queue slots that it stands for") {
  Recorder events;
  CompletionQueue cq(32, events, nullptr);
  std::atomic<uint32_t> send{0}, receive{0};
  const auto push = [&cq](uint64_t id, std::atomic<uint32_t>& counter, uint32_t to) {
    CqEntry made = entry(id);
    made.released = &counter;
    made.release_to = to;
    REQUIRE(cq.push(made));
  };
  push(1, send, 3);
  push(2, receive, 1);
  push(3, send, 7);
  REQUIRE(cq.push(entry(4)));
  Completion one;
  REQUIRE(cq.poll({&one, 1}) == 1);
  CHECK(send == 3);
  CHECK(receive == 0);
  std::vector<Completion> rest(10);
  REQUIRE(cq.poll(rest) == 3);
  CHECK(send == 7);
  CHECK(receive == 1);
}

TEST_CASE("an armed queue fires at the next completion, once") {
  Recorder events;
  CompletionQueue cq(8, events, nullptr);
  REQUIRE(cq.push(entry(1)));
  CHECK(events.fired == 0);  // not armed
  poll_all(cq);
  cq.arm(false);
  CHECK(events.fired == 0);
  REQUIRE(cq.push(entry(2)));
  CHECK(events.fired == 1);
  REQUIRE(cq.push(entry(3)));
  CHECK(events.fired == 1);
}

TEST_CASE("arming does not fire for a completion that lies unpolled, but for the next one") {
  Recorder events;
  CompletionQueue cq(8, events, nullptr);
  REQUIRE(cq.push(entry(1)));
  cq.arm(false);
  CHECK(events.fired ==
        0);  // perftest's -e arms before it polls, and takes an event for a completion
  REQUIRE(cq.push(entry(2)));
  CHECK(events.fired == 1);
}

TEST_CASE("a queue armed for solicited completions lets the others pass") {
  Recorder events;
  CompletionQueue cq(8, events, nullptr);
  cq.arm(true);
  REQUIRE(cq.push(entry(1)));
  CHECK(events.fired == 0);
  CqEntry solicited = entry(2);
  solicited.solicited = true;
  REQUIRE(cq.push(solicited));
  CHECK(events.fired == 1);
}

TEST_CASE("a failed completion counts as solicited") {
  Recorder events;
  CompletionQueue cq(8, events, nullptr);
  cq.arm(true);
  CqEntry failed = entry(1);
  failed.completion.status = CompletionStatus::kWrFlushError;
  REQUIRE(cq.push(failed));
  CHECK(events.fired == 1);
}

TEST_CASE("arming for the next completion prevails over arming for solicited ones") {
  for (const bool solicited_first : {false, true}) {
    Recorder events;
    CompletionQueue cq(8, events, nullptr);
    cq.arm(solicited_first);
    cq.arm(!solicited_first);
    REQUIRE(cq.push(entry(1)));
    CHECK(events.fired == 1);
    CqEntry solicited = entry(2);
    solicited.solicited = true;
    REQUIRE(cq.push(solicited));
    CHECK(events.fired == 1);  // one event for both
  }
}

TEST_CASE("removing a queue pair's completions keeps the others in order and frees slots") {
  Recorder events;
  CompletionQueue cq(8, events, nullptr);
  std::atomic<uint32_t> released{0};
  for (int lap = 0; lap < 3; ++lap) {  // so that the ring wraps
    for (uint64_t id = 0; id < 8; ++id) {
      CqEntry made = entry(id, id % 3 == 0 ? 7 : 8);
      made.released = id % 3 == 0 ? &released : nullptr;
      made.release_to = static_cast<uint32_t>(id) + 1;
      REQUIRE(cq.push(made));
    }
    cq.remove_all_of({7});
    CHECK(released == 7);
    CHECK(poll_all(cq) == std::vector<uint64_t>{1, 2, 4, 5, 7});
    REQUIRE(cq.push(entry(9)));
    CHECK(poll_all(cq) == std::vector<uint64_t>{9});
  }
}

TEST_CASE("removal of everything leaves an empty queue with its whole capacity") {
  Recorder events;
  CompletionQueue cq(4, events, nullptr);
  for (uint64_t id = 0; id < 4; ++id) REQUIRE(cq.push(entry(id, 7)));
  cq.remove_all_of({8});
  CHECK_FALSE(cq.empty());
  cq.remove_all_of({7});
  CHECK(cq.empty());
  cq.arm(false);
  CHECK(events.fired == 0);
  for (uint64_t id = 0; id < 4; ++id) REQUIRE(cq.push(entry(id)));
  CHECK(poll_all(cq).size() == 4);
}

TEST_CASE("two threads: nothing is lost or reordered, and slots come back in step") {
  Recorder events;
  CompletionQueue cq(64, events, nullptr);
  std::atomic<uint32_t> released{0};
  std::atomic<bool> stop{false};
  uint64_t pushed = 0;
  std::thread producer([&] {
    while (!stop) {
      // As a send queue of 64: no more than its slots are ever in the completion queue.
      if (pushed - released.load(std::memory_order_acquire) == 64) {
        std::this_thread::yield();
        continue;
      }
      CqEntry made = entry(pushed);
      made.released = &released;
      made.release_to = static_cast<uint32_t>(++pushed);
      if (!cq.push(made)) break;
    }
  });
  uint64_t expected = 0;
  bool ordered = true;
  std::vector<Completion> out(20);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(150);
  while (std::chrono::steady_clock::now() < end) {
    const size_t count = cq.poll(out);
    for (size_t i = 0; i < count; ++i) ordered = ordered && out[i].wr_id == expected++;
    if (count == 0) std::this_thread::yield();
  }
  stop = true;
  producer.join();
  CHECK_FALSE(cq.overflown());
  CHECK(ordered);
  expected += poll_all(cq).size();
  CHECK(expected == pushed);
  CHECK(pushed > 64);
}

TEST_CASE("two threads: a completion around an arming fires it, or the poll after it finds it") {
  Recorder events;
  CompletionQueue cq(64, events, nullptr);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> taken{0};
  const auto spin = [](uint64_t& spins) {
    if (++spins % 65536 == 0) std::this_thread::yield();
  };
  std::thread producer([&] {
    uint64_t spins = 0;
    for (uint64_t id = 0; !stop; ++id) {
      while (taken.load(std::memory_order_acquire) != id && !stop) spin(spins);
      if (!stop) (void)cq.push(entry(id));
    }
  });
  // Each round has one completion. The consumer arms a little earlier or later around it, by a
  // sweeping delay, then polls, then waits to be told.
  Completion one;
  bool stuck = false;
  uint64_t rounds = 0, spins = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(250);
  while (!stuck && std::chrono::steady_clock::now() < end) {
    const int before = events.fired;
    for (uint64_t delay = rounds % 256; delay != 0; --delay) __asm__ volatile("" ::: "memory");
    cq.arm(false);
    size_t polled = cq.poll({&one, 1});
    uint64_t waited = 0;
    while (polled == 0 && events.fired == before && !stuck) {
      spin(spins);
      // Ask the clock rarely, and only about a completion that lies there unannounced.
      if (++waited % 100'000 == 0 && !cq.empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        stuck = events.fired == before && !cq.empty();
      }
    }
    if (polled == 0) polled = cq.poll({&one, 1});
    if (polled == 0)
      continue;  // the event was the last round's, whose entry was polled before it fired
    ++rounds;
    taken.store(one.wr_id + 1, std::memory_order_release);
  }
  stop = true;
  producer.join();
  CHECK_FALSE(stuck);
  INFO(rounds);
  CHECK(rounds > 0);
}
