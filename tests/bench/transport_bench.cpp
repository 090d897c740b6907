// Speed of requester and responder in memory: the fixed cost per packet, beside the same frames
// copied in and out with no transport.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>
#include <variant>
#include <vector>

#include "transport/hca.hpp"

namespace {

using namespace uroce;
using namespace uroce::transport;

constexpr size_t kFrames = 512;
constexpr size_t kFrameRoom = 4096 + 128;  // bytes
constexpr size_t kBurst = 64;              // packets
constexpr uint32_t kMaxMessage = 65536;    // bytes
constexpr Gid kGid = Gid::from_ipv4(127, 0, 0, 1);
constexpr int kRounds = 7;  // the median counts

// This thread's CPU time in seconds: other programs on the machine do not count.
double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Frames from one HCA to the other: copied in by the sender, parsed in place by the receiver.
class Pipe final : public TransmitSink {
 public:
  bool can_send(const Path*, Qpn, uint32_t) override { return count_ < kFrames; }
  void send(const OutgoingPacket& packet) override {
    std::byte* const frame = room_.data() + count_ * kFrameRoom;
    std::byte* at = frame;
    std::memcpy(at, packet.headers.data(), packet.header_length);
    at += packet.header_length;
    for (size_t i = 0; i < packet.segment_count; ++i) {
      std::memcpy(at, packet.segments[i].data, packet.segments[i].length);
      at += packet.segments[i].length;
    }
    at += packet.pad_length;
    lengths_[count_++] = static_cast<size_t>(at - frame);
  }
  template <typename Receive>
  void drain(Receive&& receive) {
    for (size_t i = 0; i < count_; ++i) {
      receive(std::span<const std::byte>(room_.data() + i * kFrameRoom, lengths_[i]));
    }
    packets += count_;
    count_ = 0;
  }

  uint64_t packets = 0;

 private:
  std::vector<std::byte> room_ = std::vector<std::byte>(kFrames * kFrameRoom);
  std::array<size_t, kFrames> lengths_{};
  size_t count_ = 0;
};

struct Side final : EventSink {
  explicit Side(uint8_t number)
      : hca({.slot = number, .seed = number, .limits = {}, .active_mtu = Mtu::k4096}, *this),
        pd(*hca.create_pd()),
        cq(*hca.create_cq(1024, nullptr)),
        memory(1u << 20) {
    key = *hca.register_region({.pd = pd,
                                .address = memory.data(),
                                .length = memory.size(),
                                .iova = reinterpret_cast<uint64_t>(memory.data()),
                                .access = kLocalWrite | kRemoteWrite | kRemoteRead});
    qp = *hca.create_qp({.type = QpType::kRc,
                         .pd = pd,
                         .send_cq = cq,
                         .recv_cq = cq,
                         .capabilities = {128, 512, 1, 1, 0}},
                        {});
  }
  void on_completion_event(CompletionQueue&) override {}
  void on_async_event(AsyncEventType, void*) override { throw std::runtime_error("async event"); }

  void connect(const Side& peer) {
    QpAttributes attributes;
    attributes.path_mtu = Mtu::k4096;
    attributes.address.source_gid = attributes.address.destination_gid = kGid;
    attributes.destination_qpn = peer.qp->qpn();
    attributes.access = kLocalWrite | kRemoteWrite | kRemoteRead;
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 16;
    attributes.ack_timeout = 14;
    attributes.retry_count = attributes.rnr_retry = 7;
    modify(attributes, QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags);
    modify(attributes, QpState::kRtr,
           kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer);
    modify(attributes, QpState::kRts,
           kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic);
  }
  void modify(QpAttributes attributes, QpState state, QpAttributeMask mask) {
    attributes.state = state;
    const Status status = hca.modify_qp(*qp, attributes, mask | kQpState, {});
    if (!status) throw std::runtime_error(status.refusal().why);
  }

  Hca hca;
  PdId pd;
  CompletionQueue* cq;
  QueuePair* qp = nullptr;
  std::vector<std::byte> memory;
  uint32_t key = 0;
};

struct Workload {
  std::string_view name;
  SendOpcode opcode;
  uint32_t bytes;
  uint32_t list;  // messages per post list; the last is signalled
  uint32_t messages;
};

class Bench {
 public:
  Bench() {
    client_.connect(server_);
    server_.connect(client_);
  }

  // Seconds for the workload.
  double run(const Workload& work) {
    uint64_t posted = 0;
    uint64_t completed = 0;
    uint64_t received = 0;
    std::array<Completion, 64> completions;
    const double start = cpu_seconds();
    while (completed < work.messages) {
      now_ = now_ + 1000;
      while (posted < work.messages && posted - completed + work.list <= 128) {
        post_list(work);
        posted += work.list;
      }
      client_.hca.activate(*client_.qp, now_);
      exchange(client_, server_, to_server_);
      exchange(server_, client_, to_client_);
      completed += client_.cq->poll(completions) * work.list;
      received += server_.cq->poll(completions);
    }
    if (work.opcode == SendOpcode::kSend && received != work.messages) {
      throw std::runtime_error("receives are missing");
    }
    return cpu_seconds() - start;
  }

  // The same packets with no transport: copied in, parsed, payload copied out.
  double run_reference(const Workload& work) {
    const uint32_t payload = std::min(work.bytes, 4096u);
    OutgoingPacket packet;
    Bth bth;
    bth.opcode = opcode::kWriteOnly;
    bth.pad_count = pad_for(payload);
    begin_headers(packet, bth);
    append(packet, Reth{});
    packet.segments[0] = {client_.memory.data(), payload};
    packet.segment_count = 1;
    const uint64_t packets = uint64_t{work.messages} * std::max(1u, work.bytes / 4096);
    const double start = cpu_seconds();
    for (uint64_t sent = 0; sent < packets; sent += kBurst) {
      for (size_t i = 0; i < kBurst; ++i) to_server_.send(packet);
      to_server_.drain([this](std::span<const std::byte> bytes) {
        const auto parsed = parse(bytes);
        const PacketView& view = std::get<PacketView>(parsed);
        std::memcpy(server_.memory.data(), view.payload.data(), view.payload.size());
      });
    }
    return cpu_seconds() - start;
  }

  uint64_t packets() const { return to_server_.packets + to_client_.packets; }

 private:
  void post_list(const Workload& work) {
    const Sge piece{reinterpret_cast<uint64_t>(client_.memory.data()), work.bytes, {client_.key}};
    SendRequest request;
    request.sges = {&piece, 1};
    request.opcode = work.opcode;
    request.remote_address = reinterpret_cast<uint64_t>(server_.memory.data());
    request.rkey = {server_.key};
    for (uint32_t i = 0; i < work.list; ++i) {
      if (work.opcode == SendOpcode::kSend) {
        const Sge into{
            reinterpret_cast<uint64_t>(server_.memory.data()), kMaxMessage, {server_.key}};
        check(server_.qp->post_recv({.wr_id = i, .sges = {&into, 1}}));
      }
      request.flags = i + 1 == work.list ? kSignaled : 0u;
      check(client_.qp->post_send(request));
    }
  }
  static void check(PostError error) {
    if (error != PostError::kNone) throw std::runtime_error("post");
  }
  void exchange(Side& from, Side& to, Pipe& pipe) {
    from.hca.poll_transmit(pipe, kBurst, now_);
    const PacketOrigin origin{kGid, kGid, false};
    pipe.drain([&](std::span<const std::byte> bytes) {
      const auto parsed = parse(bytes);
      to.hca.on_packet(std::get<PacketView>(parsed), origin, now_);
    });
  }

  Pipe to_server_;
  Pipe to_client_;
  Side client_{1};
  Side server_{2};
  Instant now_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void report(Bench& bench, const Workload& work) {
  std::vector<double> seconds;
  std::vector<double> reference;
  bench.run(work);  // warms up
  const uint64_t before = bench.packets();
  for (int i = 0; i < kRounds; ++i) seconds.push_back(bench.run(work));
  const double packets = static_cast<double>(bench.packets() - before) / kRounds;
  for (int i = 0; i < kRounds; ++i) reference.push_back(bench.run_reference(work));
  const double data_packets = static_cast<double>(work.messages) * std::max(1u, work.bytes / 4096);
  const double total = median(seconds);
  const double copy = median(reference);
  fmt::print("{:<28}{:>12.2f}{:>12.2f}{:>12.1f}{:>12.1f}{:>12.1f}\n", work.name,
             work.messages / total / 1e6, packets / total / 1e6, total / data_packets * 1e9,
             copy / data_packets * 1e9, (total - copy) / data_packets * 1e9);
}

}  // namespace

int main() {
  fmt::print("{:<28}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "requester + responder", "M msg/s",
             "M packet/s", "ns/packet", "copy only", "transport");
  const Workload workloads[] = {
      {"WRITE 8 B, lists of 32", SendOpcode::kRdmaWrite, 8, 32, 320'000},
      {"WRITE 8 B, each signalled", SendOpcode::kRdmaWrite, 8, 1, 200'000},
      {"SEND 8 B, lists of 32", SendOpcode::kSend, 8, 32, 320'000},
      {"WRITE 4 KiB, lists of 8", SendOpcode::kRdmaWrite, 4096, 8, 80'000},
      {"WRITE 64 KiB", SendOpcode::kRdmaWrite, 65536, 1, 5'000},
      {"READ 64 KiB", SendOpcode::kRdmaRead, 65536, 1, 5'000},
  };
  for (const Workload& work : workloads) {
    Bench bench;
    report(bench, work);
  }
  return 0;
}
