// The longest message, 2^31 bytes: PSN arithmetic at its limits, parts of READs, lengths in 32
// bits.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/catch.hpp"
#include "tests/unit/transport/two_hcas.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

namespace {

constexpr size_t kLongest = size_t{1} << 31;
constexpr size_t kWindow = size_t{1} << 21;  // bytes of real memory, mapped again and again

// 2^31 bytes of address space over a few bytes of memory.
class LongMemory {
 public:
  LongMemory() {
    const int file = memfd_create("uroce-longest-test", MFD_CLOEXEC);
    REQUIRE(file >= 0);
    REQUIRE(ftruncate(file, kWindow) == 0);
    void* const base = mmap(nullptr, kLongest, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(base != MAP_FAILED);
    bytes_ = {static_cast<std::byte*>(base), kLongest};
    for (size_t at = 0; at < kLongest; at += kWindow) {
      REQUIRE(mmap(bytes_.data() + at, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   file, 0) != MAP_FAILED);
    }
    close(file);
  }
  ~LongMemory() { munmap(bytes_.data(), bytes_.size()); }
  LongMemory(const LongMemory&) = delete;
  LongMemory& operator=(const LongMemory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  std::byte& last() const { return bytes_[kWindow - 1]; }  // seen at every window's end

 private:
  std::span<std::byte> bytes_;
};

}  // namespace

TEST_CASE("the longest WRITE and READ arrive whole, and one byte more is refused") {
  LongMemory mine;
  LongMemory theirs;
  const Mtu mtu = GENERATE(Mtu::k4096, Mtu::k256);  // 2^19 PSNs; 2^23, half of them all
  for (const SendOpcode opcode : {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    TwoHcas t({.mtu = mtu, .client_psn = 0xfff000});
    const AccessFlags all = kLocalWrite | kRemoteWrite | kRemoteRead;
    const Lkey key = t.client.register_memory(mine.bytes(), all);
    const Lkey far = t.server.register_memory(theirs.bytes(), all);
    mine.last() = std::byte{1};
    theirs.last() = std::byte{2};
    Sge piece = TwoHcas::sge(mine.bytes(), key, 0, 1u << 31);
    SendRequest request;
    request.sges = {&piece, 1};
    request.opcode = opcode;
    request.flags = kSignaled;
    request.remote_address = reinterpret_cast<uint64_t>(theirs.bytes().data());
    request.rkey = {far.value};
    REQUIRE(t.post(request) == PostError::kNone);
    do {
      t.transmit();
      while (!t.link.empty()) t.deliver(t.take());
    } while (t.client.hca.transmit_pending() || t.server.hca.transmit_pending());
    const auto done = t.client.poll();
    REQUIRE(done.size() == 1);
    CHECK(done[0].status == CompletionStatus::kSuccess);
    CHECK(done[0].byte_length == 1u << 31);
    CHECK(mine.last() == theirs.last());
    CHECK(t.client.hca.counters().tx_retransmitted_packets == 0);
    piece.length = (1u << 31) + 1;
    CHECK(t.post(request) == PostError::kMessageTooLong);
  }
}
