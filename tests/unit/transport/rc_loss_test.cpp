// Exactly once and in order over links that lose, repeat and reorder: small exhaustive and random
// runs. (The simulation suite does the same at length.)
#include <cstring>
#include <random>

#include "tests/catch.hpp"
#include "tests/unit/transport/two_hcas.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

namespace {

constexpr uint64_t kRemoteOffset = 1u << 19;

uint64_t word_at(const std::vector<std::byte>& memory, size_t offset) {
  uint64_t value;
  std::memcpy(&value, memory.data() + offset, sizeof value);
  return value;
}

// Posts one operation, loses frames by the mask, and checks that it happened exactly once.
void exchange(SendOpcode opcode, uint32_t length, uint32_t mask) {
  CAPTURE(int(opcode), length, mask);
  TwoHcas t({.client_psn = 0xfffffe});
  for (size_t i = 0; i < 2048; ++i) {
    t.client_memory[i] = static_cast<std::byte>(i * 3 + 1);
    t.server_memory[kRemoteOffset + i] = static_cast<std::byte>(i * 7 + 2);
  }
  const std::vector<std::byte> source(t.client_memory.begin(), t.client_memory.begin() + 2048);
  uint32_t number = 0;
  t.lose = [&](const Frame&) { return number < 8 && (mask >> number++ & 1) != 0; };
  REQUIRE(t.post_receive(4096) == PostError::kNone);
  const bool atomic = opcode >= SendOpcode::kAtomicCmpAndSwp;
  const Sge piece = TwoHcas::sge(t.client_memory, t.client_key, 0, atomic ? 8 : length);
  SendRequest request;
  request.sges = {&piece, 1};
  request.opcode = opcode;
  request.flags = kSignaled;
  request.remote_address = reinterpret_cast<uint64_t>(t.server_memory.data()) + kRemoteOffset;
  request.rkey = {t.server_key.value};
  const uint64_t before = word_at(t.server_memory, kRemoteOffset);
  request.compare_add = opcode == SendOpcode::kAtomicCmpAndSwp ? before : 5;
  request.swap = 99;
  REQUIRE(t.post(request) == PostError::kNone);
  t.run_to_end();

  const auto done = t.client.poll();
  REQUIRE(done.size() == 1);
  if (mask == 0xff && done[0].status == CompletionStatus::kRetryExceededError) return;
  REQUIRE(done[0].status == CompletionStatus::kSuccess);
  const bool receives = opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImm ||
                        opcode == SendOpcode::kRdmaWriteWithImm;
  CHECK(t.server.poll().size() == (receives ? 1 : 0));
  if (atomic) {
    CHECK(word_at(t.client_memory, 0) == before);
    CHECK(word_at(t.server_memory, kRemoteOffset) ==
          (opcode == SendOpcode::kAtomicCmpAndSwp ? 99 : before + 5));
  } else if (opcode == SendOpcode::kRdmaRead) {
    CHECK(std::memcmp(t.client_memory.data(), t.server_memory.data() + kRemoteOffset, length) == 0);
    CHECK(t.client_memory[length] == source[length]);
  } else {
    const bool send = opcode == SendOpcode::kSend || opcode == SendOpcode::kSendWithImm;
    const size_t at = send ? 0 : kRemoteOffset;
    CHECK(std::memcmp(source.data(), t.server_memory.data() + at, length) == 0);
  }
}

// A link that loses, repeats and reorders frames, by a seed.
class RoughLink {
 public:
  RoughLink(TwoHcas& t, uint64_t seed) : t_(t), random_(seed) {}

  bool chance(uint32_t percent) { return random_() % 100 < percent; }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  // Delivers what is on the link, roughly; frames that are held back come in later calls.
  void step(uint32_t percent) {
    t_.transmit();
    while (!t_.link.empty() && held_.size() < 4) {
      const Frame frame = t_.take();
      if (chance(percent)) continue;
      if (chance(percent)) held_.push_back(frame);
      t_.deliver(frame);
      if (chance(percent)) t_.deliver(frame);
      if (!held_.empty() && chance(30)) {
        t_.deliver(held_.front());
        held_.pop_front();
      }
    }
    while (!t_.link.empty()) {
      held_.push_back(t_.take());
      std::swap(held_.front(), held_.back());
      t_.deliver(held_.front());
      held_.pop_front();
    }
    if (!held_.empty()) {
      t_.deliver(held_.front());
      held_.pop_front();
    }
  }
  bool idle() const { return t_.link.empty() && held_.empty(); }

 private:
  TwoHcas& t_;
  std::mt19937_64 random_;
  std::deque<Frame> held_;
};

struct Totals {
  uint64_t added = 0;
  std::vector<std::pair<uint64_t, std::byte>> sends;  // wr_id and first byte
  size_t posted = 0;
};

constexpr size_t kCounterAt = 1000 * 1024;
constexpr size_t kReadFrom = 512 * 1024;
constexpr size_t kSendInto = 256 * 1024;

void post_random(TwoHcas& t, RoughLink& link, Totals& totals) {
  const SendOpcode opcodes[] = {SendOpcode::kRdmaWrite, SendOpcode::kSend, SendOpcode::kRdmaRead,
                                SendOpcode::kAtomicFetchAndAdd, SendOpcode::kRdmaWriteWithImm};
  SendRequest request;
  request.opcode = opcodes[link.below(5)];
  request.wr_id = ++totals.posted;
  request.flags = (link.chance(70) ? kSignaled : 0u) | (link.chance(10) ? kFence : 0u);
  const size_t slot = totals.posted * 4096;  // the client's buffer of this request
  const bool atomic = request.opcode == SendOpcode::kAtomicFetchAndAdd;
  const uint32_t length = atomic ? 8 : link.below(5) == 0 ? link.below(2) : link.below(1500);
  const auto pattern = static_cast<std::byte>(totals.posted);
  std::fill_n(t.client_memory.begin() + static_cast<ptrdiff_t>(slot), 2048, pattern);
  const Sge piece = TwoHcas::sge(t.client_memory, t.client_key, slot, length);
  request.sges = {&piece, 1};
  const size_t remote = atomic                                    ? kCounterAt
                        : request.opcode == SendOpcode::kRdmaRead ? kReadFrom
                                                                  : slot % kSendInto;
  request.remote_address = reinterpret_cast<uint64_t>(t.server_memory.data()) + remote;
  request.rkey = {t.server_key.value};
  request.compare_add = request.wr_id;
  const bool receives =
      request.opcode == SendOpcode::kSend || request.opcode == SendOpcode::kRdmaWriteWithImm;
  if (receives) {
    const Sge into = TwoHcas::sge(t.server_memory, t.server_key, kSendInto, 4096);
    REQUIRE(t.server.qp->post_recv({.wr_id = request.wr_id, .sges = {&into, 1}}) ==
            PostError::kNone);
    totals.sends.push_back({request.wr_id, pattern});
  }
  if (atomic) totals.added += request.compare_add;
  REQUIRE(t.post(request) == PostError::kNone);
}

void random_run(uint64_t seed, uint32_t percent) {
  CAPTURE(seed, percent);
  TwoHcas t({.capabilities = {256, 256, 2, 2, 0}, .client_psn = 0xffffe0, .retry_count = 7});
  RoughLink link(t, seed);
  for (size_t i = 0; i < 4096; ++i) {
    t.server_memory[kReadFrom + i] = static_cast<std::byte>(i * 11);
  }
  Totals totals;
  size_t received = 0;
  std::vector<uint64_t> completed;
  for (int round = 0; round < 20'000; ++round) {
    if (totals.posted < 100 && link.chance(50)) post_random(t, link, totals);
    link.step(percent);
    for (const Completion& each : t.server.poll()) {
      REQUIRE(each.status == CompletionStatus::kSuccess);
      REQUIRE(each.wr_id == totals.sends.at(received++).first);
    }
    for (const Completion& each : t.client.poll()) {
      REQUIRE(each.status == CompletionStatus::kSuccess);
      REQUIRE((completed.empty() || completed.back() < each.wr_id));
      completed.push_back(each.wr_id);
      if (each.opcode == CompletionOpcode::kRdmaRead) {
        CHECK(std::memcmp(t.client_memory.data() + each.wr_id * 4096,
                          t.server_memory.data() + kReadFrom, each.byte_length) == 0);
      }
    }
    if (!link.idle() || t.client.hca.transmit_pending() || t.server.hca.transmit_pending()) {
      continue;
    }
    if (totals.posted == 100 && !t.advance()) break;
    if (totals.posted < 100 && link.chance(10)) t.advance();
  }
  CHECK(totals.posted == 100);
  CHECK(received == totals.sends.size());
  CHECK(word_at(t.server_memory, kCounterAt) == totals.added);
  CHECK(t.client.hca.next_deadline() == Instant::never());
}

}  // namespace

TEST_CASE("every operation survives every loss of its first eight frames") {
  for (const uint32_t length : {0u, 256u, 600u}) {
    for (uint8_t opcode = 0; opcode <= 6; ++opcode) {
      if (opcode >= 5 && length != 0) continue;
      for (uint32_t mask = 0; mask < 256; ++mask) {
        exchange(static_cast<SendOpcode>(opcode), length, mask);
      }
    }
  }
}

TEST_CASE("random work over rough links happens exactly once and in order") {
  for (uint64_t seed = 1; seed <= 100; ++seed) random_run(seed, static_cast<uint32_t>(seed % 12));
}
