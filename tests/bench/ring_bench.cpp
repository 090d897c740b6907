// The raw fabric wire between two processes: what frames cost with no transport and no CRC, the
// payload copied in from a buffer by the sender and out to one by the receiver.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "datapath/fabric/fabric_addresses.hpp"
#include "datapath/fabric/fabric_wire.hpp"

namespace {

using namespace uroce;
using namespace uroce::datapath;

constexpr size_t kBufferBytes = 64 << 10;  // what a 64 KiB message is copied from and to
constexpr size_t kBurst = 32;
constexpr int kRuns = 5;
constexpr int64_t kSecond = 1'000'000'000;
constexpr size_t kHeader = 14;

int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

[[noreturn]] void give_up(std::string_view why) {
  fmt::print(stderr, "ring_bench: {}\n", why);
  _exit(1);
}

// One process's end: an open wire and a path to the other end.
class End {
 public:
  End(const Config& config, size_t device) : config_(config), device_(device) {
    auto opened = open_fabric_wire(config, describe_fabric_devices(config).value()[device]);
    if (!opened) give_up(opened.refusal().why);
    wire_ = std::move(*opened);
  }

  void connect(uint8_t peer) {
    const auto devices = describe_fabric_devices(config_).value();
    transport::AddressVector address;
    address.source_gid = devices[device_].gids[1].gid;
    address.destination_gid = devices[1 - device_].gids[1].gid;
    peer_ = Qpn::of(peer, 1);
    const int64_t start = now_ns();
    auto path = wire_->open_path(address, peer_);
    if (!path || !wire_->wait_resolved(**path, 10 * kSecond))
      give_up("no path to the other process");
    path_ = std::move(*path);
    connect_ns_ = now_ns() - start;
  }
  int64_t connect_ns() const { return connect_ns_; }

  Wire& wire() { return *wire_; }

  void send(size_t frame_bytes) {
    const size_t payload = frame_bytes - kHeader;
    std::byte* out = wire_->reserve(*path_, peer_, frame_bytes);
    for (int spins = 0; out == nullptr; ++spins) {
      wire_->flush();
      if (spins > 100) sched_yield();
      out = wire_->reserve(*path_, peer_, frame_bytes);
    }
    std::memset(out, 0, kHeader);
    std::memcpy(out + kHeader, next(payload), payload);
    wire_->commit(frame_bytes);
  }

  // Copies out what is there, and returns how many frames that were.
  size_t receive() {
    const size_t count = wire_->receive(frames_);
    for (size_t i = 0; i < count; ++i) {
      const size_t payload = frames_[i].length - kHeader;
      std::memcpy(next(payload), frames_[i].data + kHeader, payload);
    }
    if (count != 0) wire_->release();
    return count;
  }

  void receive_exactly(size_t frames) {
    for (int idle = 0; frames != 0;) {
      const size_t count = receive();
      frames -= std::min(count, frames);
      idle = count == 0 ? idle + 1 : 0;
      if (idle > 1000) sched_yield();
    }
  }

 private:
  std::byte* next(size_t bytes) {
    if (at_ + bytes > buffer_.size()) at_ = 0;
    return buffer_.data() + std::exchange(at_, at_ + bytes);
  }

  Config config_;
  size_t device_;
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<Path> path_;
  Qpn peer_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kBufferBytes);
  size_t at_ = 0;
  int64_t connect_ns_ = 0;
  std::array<Frame, kBurst> frames_;
};

struct Stream {
  size_t frame_bytes;
  size_t frames;
};
constexpr std::array<Stream, 2> kStreams = {{{4154, 200'000}, {64, 2'000'000}}};
constexpr size_t kRoundTrips = 200'000;
constexpr size_t kRoundTripBytes = 64;

// The other end follows the same script.
void follow(End& end) {
  for (int run = 0; run < kRuns; ++run) {
    for (const Stream& stream : kStreams) {
      end.receive_exactly(stream.frames);
      end.send(kRoundTripBytes);
      end.wire().flush();
    }
    for (size_t i = 0; i < kRoundTrips; ++i) {
      end.receive_exactly(1);
      end.send(kRoundTripBytes);
      end.wire().flush();
    }
  }
}

// Nanoseconds until the other end has received all of the stream and said so.
double time_stream(End& end, const Stream& stream) {
  const int64_t start = now_ns();
  for (size_t i = 0; i < stream.frames; ++i) {
    end.send(stream.frame_bytes);
    if (i % kBurst == kBurst - 1) end.wire().flush();
  }
  end.wire().flush();
  end.receive_exactly(1);
  return static_cast<double>(now_ns() - start);
}

double time_round_trips(End& end) {
  const int64_t start = now_ns();
  for (size_t i = 0; i < kRoundTrips; ++i) {
    end.send(kRoundTripBytes);
    end.wire().flush();
    end.receive_exactly(1);
  }
  return static_cast<double>(now_ns() - start) / static_cast<double>(kRoundTrips);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void lead(End& end) {
  std::vector<double> gbits, mpps, round_trips;
  for (int run = 0; run < kRuns; ++run) {
    const double large_ns = time_stream(end, kStreams[0]);
    gbits.push_back(static_cast<double>(kStreams[0].frames * kStreams[0].frame_bytes * 8) /
                    large_ns);
    const double small_ns = time_stream(end, kStreams[1]);
    mpps.push_back(static_cast<double>(kStreams[1].frames) * 1e3 / small_ns);
    round_trips.push_back(time_round_trips(end));
  }
  fmt::print("raw fabric wire, {} B frames: {:.1f} Gbit/s\n", kStreams[0].frame_bytes,
             median(gbits));
  fmt::print("raw fabric wire, {} B frames: {:.1f} Mpps\n", kStreams[1].frame_bytes, median(mpps));
  fmt::print("raw fabric wire, {} B round trip: {:.3f} us\n", kRoundTripBytes,
             median(round_trips) / 1e3);
  fmt::print("raw fabric wire, from open_path to the first frame: {:.3f} ms\n",
             static_cast<double>(end.connect_ns()) / 1e6);
}

// The slots of a new fabric are given out in order: the leader's is 1, the follower's 2. A byte in
// each direction says that an end is open.
[[noreturn]] void run_follower(const Config& config, int hear, int say) {
  char token = 0;
  if (read(hear, &token, 1) != 1) give_up("the leader is gone");
  End end(config, 1);
  if (write(say, &token, 1) != 1) give_up("the leader is gone");
  end.connect(1);
  follow(end);
  end.wire().close_gracefully(kSecond);
  _exit(0);
}

void run_leader(const Config& config, int hear, int say) {
  char token = 0;
  End end(config, 0);
  if (write(say, &token, 1) != 1 || read(hear, &token, 1) != 1) give_up("the follower is gone");
  end.connect(2);
  lead(end);
  end.wire().close_gracefully(kSecond);
}

}  // namespace

int main() {
  char name[] = "/tmp/uroce-ring-bench-XXXXXX";
  Config config;
  if (mkdtemp(name) == nullptr) give_up("no temporary directory");
  config.run_directory = name;
  int to_follower[2], to_leader[2];
  if (pipe(to_follower) != 0 || pipe(to_leader) != 0) give_up("no pipe");
  const pid_t child = fork();
  if (child == 0) run_follower(config, to_follower[0], to_leader[1]);
  close(to_leader[1]);
  run_leader(config, to_leader[0], to_follower[1]);
  waitpid(child, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(config.run_directory, ignored);
}
