// Two HCAs, a perfect link that tests may tamper with, and a clock that moves when told: the ground
// of transcript tests.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "transport/hca.hpp"
#include "transport/syndrome.hpp"

namespace uroce::transport::test {

struct Frame {
  bool from_client = false;
  std::vector<std::byte> bytes;  // BTH to pad

  PacketView view() const { return std::get<PacketView>(parse(bytes)); }
};

// "> SEND_ONLY 100 ack" for a client's packet, "< ACK 100" for a server's.
inline std::string describe(const Frame& frame) {
  const PacketView packet = frame.view();
  std::string text = frame.from_client ? "> " : "< ";
  std::string_view name = packet.opcode->name;
  if (name.starts_with("RC_")) name.remove_prefix(3);
  if (packet.opcode->operation == Operation::kAcknowledge) {
    const uint8_t value = aeth_value(packet.aeth.syndrome);
    switch (aeth_kind(packet.aeth.syndrome)) {
      case AethKind::kAck:
        text += "ACK";
        break;
      case AethKind::kRnrNak:
        text += fmt::format("RNR({})", value);
        break;
      case AethKind::kNak:
        text += fmt::format("NAK({})", value);
        break;
      case AethKind::kReserved:
        text += "RESERVED";
        break;
    }
    return text + fmt::format(" {}", packet.bth.psn.value());
  }
  text += fmt::format("{} {}", name, packet.bth.psn.value());
  if (packet.opcode->carries_payload) text += fmt::format(" {}B", packet.payload.size());
  if (packet.opcode->operation == Operation::kReadRequest) {
    text += fmt::format(" {}B", packet.reth.dma_length);
  }
  if (packet.bth.ack_request) text += " ack";
  return text;
}

struct RaisedEvent {
  AsyncEventType type;
  void* subject;
};

// One HCA with a domain, a completion queue for all and memory.
class Side : public EventSink, public TransmitSink {
 public:
  Side(bool client, std::deque<Frame>& link, HcaConfig config)
      : gid(Gid::from_ipv4(127, 0, 0, client ? 1 : 2)),
        hca(config, *this),
        pd(*hca.create_pd()),
        cq(*hca.create_cq(4096, nullptr)),
        client_(client),
        link_(link) {}

  Lkey register_memory(std::span<std::byte> bytes, AccessFlags access) {
    return {*hca.register_region({.pd = pd,
                                  .address = bytes.data(),
                                  .length = bytes.size(),
                                  .iova = reinterpret_cast<uint64_t>(bytes.data()),
                                  .access = access})};
  }

  std::vector<Completion> poll() {
    std::vector<Completion> all(64);
    all.resize(cq->poll(all));
    return all;
  }

  void on_completion_event(CompletionQueue&) override { ++completion_events; }
  void on_async_event(AsyncEventType type, void* subject) override {
    events.push_back({type, subject});
  }

  bool can_send(const Path*, Qpn, uint32_t) override {
    if (room == 0) return false;
    --room;
    return true;
  }
  void send(const OutgoingPacket& packet) override {
    Frame frame{.from_client = client_, .bytes = {}};
    const auto append_bytes = [&frame](const std::byte* data, size_t size) {
      frame.bytes.insert(frame.bytes.end(), data, data + size);
    };
    append_bytes(packet.headers.data(), packet.header_length);
    for (size_t i = 0; i < packet.segment_count; ++i) {
      append_bytes(packet.segments[i].data, packet.segments[i].length);
    }
    frame.bytes.resize(frame.bytes.size() + packet.pad_length);
    link_.push_back(std::move(frame));
  }

  Gid gid;
  Hca hca;
  PdId pd;
  CompletionQueue* cq;
  QueuePair* qp = nullptr;
  std::vector<RaisedEvent> events;
  size_t completion_events = 0;
  size_t room = ~size_t{0};  // frames that the wire still takes

 private:
  bool client_;
  std::deque<Frame>& link_;
};

struct ConnectOptions {
  QpCapabilities capabilities{128, 128, 4, 4, 64};
  bool signal_all = false;
  Mtu mtu = Mtu::k256;
  uint32_t client_psn = 100;
  uint32_t server_psn = 200;
  uint8_t ack_timeout = 10;  // 4.19 ms
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 10 us
  uint8_t max_rd_atomic = 4;
  AccessFlags access = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;
};

class TwoHcas {
 public:
  explicit TwoHcas(const ConnectOptions& options = {})
      : client_memory(1u << 20),
        server_memory(1u << 20),
        client(true, link, {.slot = 1, .seed = 1, .limits = {}, .active_mtu = Mtu::k4096}),
        server(false, link, {.slot = 2, .seed = 2, .limits = {}, .active_mtu = Mtu::k4096}) {
    const AccessFlags all = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;
    client_key = client.register_memory(client_memory, all);
    server_key = server.register_memory(server_memory, all);
    std::tie(client.qp, server.qp) = connect(options);
  }

  // One more pair of connected queue pairs.
  std::pair<QueuePair*, QueuePair*> connect(const ConnectOptions& options) {
    QueuePair* a = create(client, options);
    QueuePair* b = create(server, options);
    bring_up(client, *a, server, *b, options);
    ConnectOptions swapped = options;
    std::swap(swapped.client_psn, swapped.server_psn);
    bring_up(server, *b, client, *a, swapped);
    return {a, b};
  }

  static QueuePair* create(Side& side, const ConnectOptions& options) {
    return *side.hca.create_qp({.type = QpType::kRc,
                                .pd = side.pd,
                                .send_cq = side.cq,
                                .recv_cq = side.cq,
                                .capabilities = options.capabilities,
                                .signal_all = options.signal_all,
                                .owner = &side},
                               {});
  }

  static QpAttributes attributes_of(const Side& own, const Side& peer, Qpn peer_qpn,
                                    const ConnectOptions& options) {
    QpAttributes attributes;
    attributes.path_mtu = options.mtu;
    attributes.rq_psn = Psn(options.server_psn);
    attributes.sq_psn = Psn(options.client_psn);
    attributes.destination_qpn = peer_qpn;
    attributes.access = options.access;
    attributes.address.source_gid = own.gid;
    attributes.address.destination_gid = peer.gid;
    attributes.max_rd_atomic = options.max_rd_atomic;
    attributes.max_dest_rd_atomic = options.max_rd_atomic;
    attributes.min_rnr_timer = options.min_rnr_timer;
    attributes.ack_timeout = options.ack_timeout;
    attributes.retry_count = options.retry_count;
    attributes.rnr_retry = options.rnr_retry;
    return attributes;
  }

  static constexpr QpAttributeMask kToInit = kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
  static constexpr QpAttributeMask kToRtr =
      kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
  static constexpr QpAttributeMask kToRts =
      kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic;

  static void bring_up(Side& own, QueuePair& qp, const Side& peer, const QueuePair& peer_qp,
                       const ConnectOptions& options) {
    QpAttributes attributes = attributes_of(own, peer, peer_qp.qpn(), options);
    attributes.state = QpState::kInit;
    require(own.hca.modify_qp(qp, attributes, kToInit, {}));
    attributes.state = QpState::kRtr;
    require(own.hca.modify_qp(qp, attributes, kToRtr, {}));
    attributes.state = QpState::kRts;
    require(own.hca.modify_qp(qp, attributes, kToRts, {}));
  }

  static void require(const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.refusal().why);
  }

  // Posting at the client (server), one SGE into its memory.
  static Sge sge(std::span<std::byte> memory, Lkey key, size_t offset, uint32_t length) {
    return {reinterpret_cast<uint64_t>(memory.data()) + offset, length, key};
  }
  PostError post(SendOpcode opcode, uint32_t length, SendFlags flags = kSignaled,
                 uint64_t remote_offset = 0) {
    const Sge piece = sge(client_memory, client_key, 0, length);
    SendRequest request;
    request.wr_id = next_wr_id++;
    request.sges = {&piece, 1};
    request.opcode = opcode;
    request.flags = flags;
    request.immediate = 0x01020304;
    request.remote_address = reinterpret_cast<uint64_t>(server_memory.data()) + remote_offset;
    request.rkey = {server_key.value};
    return post(request);
  }
  PostError post(const SendRequest& request) {
    const PostError error = client.qp->post_send(request);
    client.hca.activate(*client.qp, now);
    return error;
  }
  PostError post_receive(uint32_t length, uint64_t wr_id = 1000) {
    const Sge piece = sge(server_memory, server_key, 0, length);
    return server.qp->post_recv({.wr_id = wr_id, .sges = {&piece, 1}});
  }

  // Both sides put what they have on the link.
  void transmit() {
    client.hca.poll_transmit(client, 64, now);
    server.hca.poll_transmit(server, 64, now);
  }
  // Takes the first frame off the link, without delivering it.
  Frame take() {
    Frame frame = std::move(link.front());
    link.pop_front();
    return frame;
  }
  void deliver(const Frame& frame) {
    Side& to = frame.from_client ? server : client;
    const Side& from = frame.from_client ? client : server;
    const auto parsed = parse(frame.bytes);
    if (const DropReason* reason = std::get_if<DropReason>(&parsed)) {
      to.hca.count_drop(*reason);
    } else {
      to.hca.on_packet(std::get<PacketView>(parsed), {from.gid, to.gid, false}, now);
    }
  }
  // One exchange: everything that can leave leaves, then all of it arrives but what `lose` takes.
  // Returns the transcript; lost frames are marked "lost".
  std::vector<std::string> step() {
    std::vector<std::string> transcript;
    transmit();
    std::deque<Frame> burst;
    burst.swap(link);
    for (const Frame& frame : burst) {
      const bool lost = lose && lose(frame);
      transcript.push_back(describe(frame) + (lost ? " lost" : ""));
      if (!lost) deliver(frame);
    }
    return transcript;
  }
  // Steps until nothing moves any more at this time.
  std::vector<std::string> run() {
    std::vector<std::string> all;
    for (int i = 0; i < 10'000; ++i) {
      const std::vector<std::string> part = step();
      if (part.empty() && !client.hca.transmit_pending() && !server.hca.transmit_pending()) break;
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  // Moves the clock to the next deadline of either side and serves it; false if there is none.
  bool advance() {
    const Instant next = std::min(client.hca.next_deadline(), server.hca.next_deadline());
    if (next == Instant::never()) return false;
    now = std::max(now, next);
    client.hca.on_timeout(now);
    server.hca.on_timeout(now);
    return true;
  }
  void advance_by(int64_t ns) {
    now = now + ns;
    client.hca.on_timeout(now);
    server.hca.on_timeout(now);
  }
  // Runs through time until nothing is left to do; returns the transcript.
  std::vector<std::string> run_to_end() {
    std::vector<std::string> all = run();
    for (int i = 0; i < 10'000 && advance(); ++i) {
      const std::vector<std::string> part = run();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  std::deque<Frame> link;
  std::vector<std::byte> client_memory;
  std::vector<std::byte> server_memory;
  Side client;
  Side server;
  Lkey client_key;
  Lkey server_key;
  Instant now{1'000'000};
  uint64_t next_wr_id = 1;
  std::function<bool(const Frame&)> lose;
};

using Transcript = std::vector<std::string>;

// Gives every byte a value of its own place.
inline void number(std::vector<std::byte>& memory) {
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 5 + i / 256);
}

// Loses the frames whose transcript lines are listed, each once.
inline auto losing(Transcript lines) {
  return [lines](const Frame& frame) mutable {
    const auto found = std::find(lines.begin(), lines.end(), describe(frame));
    if (found == lines.end()) return false;
    lines.erase(found);
    return true;
  };
}

// A signalled request between the starts of both memories.
inline SendRequest plain(TwoHcas& t, SendOpcode opcode, std::span<const Sge> sges) {
  SendRequest request;
  request.wr_id = t.next_wr_id++;
  request.sges = sges;
  request.opcode = opcode;
  request.flags = kSignaled;
  request.remote_address = reinterpret_cast<uint64_t>(t.server_memory.data());
  request.rkey = {t.server_key.value};
  return request;
}

}  // namespace uroce::transport::test
