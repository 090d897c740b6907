// The raw ethdev wire between two namespaces: the same frames as RoCE traffic, payload copied in
// from a buffer by the sender and out to one by the receiver, with no transport and no CRC. What
// stands above the wire is measured against this.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>

#include "tests/unit/datapath/ethdev_frames.hpp"

namespace uroce::test {
namespace {

using datapath::Frame;
using datapath::Wire;
using Clock = std::chrono::steady_clock;

constexpr size_t kRuns = 5;
constexpr auto kRunTime = std::chrono::milliseconds(400);
constexpr uint64_t kWindow = 512;  // frames in flight: the wire drops what overruns its ring
constexpr size_t kBurst = 32;
constexpr size_t kBufferBytes = 64 * 1024;  // a message that stays in the cache, as perftest's does
constexpr size_t kRoundTrips = 20'000;
constexpr size_t kHeaderBytes = 42 + 12;  // Ethernet, IPv4, UDP and BTH
constexpr size_t kIcrcBytes = 4;

// Shared by the two hosts' processes. The receiver tells what it has through memory, so that the
// wire carries the measured frames only.
struct Shared {
  std::atomic<uint64_t> received{0};
  std::atomic<bool> stop{false};
};

template <typename Step>
void poll_until(const std::atomic<bool>& stop, Step step) {
  for (unsigned idle = 0; !stop.load(std::memory_order_relaxed);) {
    idle = step() ? 0 : idle + 1;
    if (idle > 64) sched_yield();
  }
}

class Sender {
 public:
  Sender(Wire& wire, const Path& path, size_t frame_bytes)
      : wire_(wire), path_(path), payload_bytes_(frame_bytes - kHeaderBytes - kIcrcBytes) {
    std::vector<std::byte> frame(datapath::frame_bytes_bound(path, 4096));
    const std::vector<std::byte> payload(payload_bytes_);
    datapath::build_frame(frame.data(), path, packet_with(payload));
    std::copy_n(frame.begin(), kHeaderBytes, headers_.begin());
  }

  bool send_frame() {
    const size_t size = kHeaderBytes + payload_bytes_ + kIcrcBytes;
    std::byte* const out = wire_.reserve(path_, Qpn{0x112233}, size);
    if (out == nullptr) return false;
    std::memcpy(out, headers_.data(), kHeaderBytes);
    std::memcpy(out + kHeaderBytes, &buffer_[at_], payload_bytes_);
    at_ = at_ + 2 * payload_bytes_ <= buffer_.size() ? at_ + payload_bytes_ : 0;
    wire_.commit(size);
    return true;
  }

 private:
  Wire& wire_;
  const Path& path_;
  const size_t payload_bytes_;
  std::array<std::byte, kHeaderBytes> headers_{};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kBufferBytes);
  size_t at_ = 0;
};

// Copies payloads out; returns how many frames came.
class Receiver {
 public:
  explicit Receiver(Wire& wire) : wire_(wire) {}

  size_t receive_frames() {
    const size_t count = wire_.receive(burst_);
    for (size_t i = 0; i < count; ++i) {
      const size_t payload = burst_[i].length - kHeaderBytes - kIcrcBytes;
      std::memcpy(&buffer_[at_], burst_[i].data + kHeaderBytes, payload);
      at_ = at_ + 2 * payload <= buffer_.size() ? at_ + payload : 0;
    }
    wire_.release();
    return count;
  }

 private:
  Wire& wire_;
  std::array<Frame, kBurst> burst_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kBufferBytes);
  size_t at_ = 0;
};

// Frames per second from host 0 to host 1.
double measure_throughput(const Host& host, Wire& wire, const Path& path, size_t frame_bytes,
                          Shared& shared) {
  Sender sender(wire, path, frame_bytes);
  Receiver receiver(wire);
  if (host.number == 0) shared.stop = false;
  shared.received = 0;
  host.meet();
  if (host.number == 1) {
    uint64_t received = 0;
    poll_until(shared.stop, [&] {
      const size_t count = receiver.receive_frames();
      received += count;
      shared.received.store(received, std::memory_order_relaxed);
      return count != 0;
    });
    host.meet();
    while (receiver.receive_frames() != 0) {
    }
    host.meet();
    return 0;
  }
  uint64_t sent = 0;
  const auto begin = Clock::now();
  const auto end = begin + kRunTime;
  while (Clock::now() < end) {
    if (sent - shared.received.load(std::memory_order_relaxed) + kBurst > kWindow) {
      wire.flush();
      sched_yield();
      continue;
    }
    for (size_t i = 0; i < kBurst && sender.send_frame(); ++i) ++sent;
    wire.flush();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const double rate = static_cast<double>(shared.received.load()) / seconds;
  shared.stop = true;
  host.meet();
  host.meet();
  return rate;
}

// Microseconds for a 64-byte frame to go and come back, the median.
double measure_round_trip(const Host& host, Wire& wire, const Path& path, Shared& shared) {
  Sender sender(wire, path, 64);
  Receiver receiver(wire);
  shared.stop = false;
  host.meet();
  if (host.number == 1) {
    poll_until(shared.stop, [&] {
      const size_t count = receiver.receive_frames();
      for (size_t i = 0; i < count; ++i) sender.send_frame();
      if (count != 0) wire.flush();
      return count != 0;
    });
    return 0;
  }
  std::vector<double> trips;
  for (size_t i = 0; i < kRoundTrips; ++i) {
    const auto begin = Clock::now();
    sender.send_frame();
    wire.flush();
    for (unsigned idle = 0; receiver.receive_frames() == 0;) {
      if (++idle > 64) sched_yield();
    }
    trips.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  shared.stop = true;
  std::nth_element(trips.begin(), trips.begin() + kRoundTrips / 2, trips.end());
  return trips[kRoundTrips / 2];
}

double median_of_runs(const std::function<double()>& measure) {
  std::vector<double> values;
  for (size_t run = 0; run < kRuns; ++run) values.push_back(measure());
  std::sort(values.begin(), values.end());
  return values[kRuns / 2];
}

void run(const Host& host, Shared& shared) {
  auto wire = open_or_fail(host);
  auto path = path_or_fail(*wire, gid_of(host.own_ipv4), gid_of(host.peer_ipv4));
  check(wire->wait_resolved(*path, 3'000'000'000), "the peer is resolved");
  host.meet();
  for (const size_t frame_bytes : {size_t{4154}, size_t{64}}) {
    const double rate =
        median_of_runs([&] { return measure_throughput(host, *wire, *path, frame_bytes, shared); });
    if (host.number == 0) {
      fmt::print("raw ethdev wire: {:4} bytes: {:6.2f} Gbit/s, {:.3f} Mpps\n", frame_bytes,
                 rate * static_cast<double>(frame_bytes) * 8 / 1e9, rate / 1e6);
    }
  }
  const double trip = median_of_runs([&] {
    host.meet();
    return measure_round_trip(host, *wire, *path, shared);
  });
  if (host.number == 0) fmt::print("raw ethdev wire:   64 bytes: round trip {:.2f} us\n", trip);
  if (host.number == 1) {
    const auto counters = wire->counters();
    fmt::print("raw ethdev wire: frames lost at the receiver's ring: {}\n", counters.rx_dropped);
  }
}

}  // namespace
}  // namespace uroce::test

int main() {
  using namespace uroce::test;
  if (!can_make_hosts()) {
    fmt::print(stderr, "skipped: making network namespaces needs root\n");
    return 77;
  }
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto& shared = *new (memory) Shared;
  return run_on_two_hosts(4200, [&](const Host& host) { run(host, shared); }) ? 0 : 1;
}
