// One HCA whose peer is the test: packets made by hand go in, and what comes out is a transcript.
#pragma once

#include <deque>
#include <optional>

#include "tests/unit/transport/two_hcas.hpp"

namespace uroce::transport::test {

// A packet as the peer would build it; the opcode decides which headers are written.
struct HandMade {
  uint8_t opcode = 0;
  uint32_t psn = 0;
  size_t payload = 0;  // bytes, of value 0xa0 + their offset
  bool ack = true;
  Reth reth{};
  AtomicEth atomic{};
  Aeth aeth{ack_syndrome(), 0};
  uint64_t original = 0;
  uint32_t immediate = 0;
  uint32_t invalidate = 0;
};

class LoneHca {
 public:
  static constexpr Qpn kPeerQpn{0x020007};
  static constexpr size_t kMemory = 1u << 16;
  static constexpr size_t kGuard = 256;  // bytes before and after the region that nobody may touch
  static constexpr std::byte kCanary{0xc5};

  explicit LoneHca(const ConnectOptions& options = {}, AccessFlags region_access = kAll)
      : memory_(kMemory + 2 * kGuard, kCanary),
        side(false, link_, {.slot = 1, .seed = 1, .limits = {}, .active_mtu = Mtu::k4096}),
        peer_(true, peer_link_, {.slot = 2, .seed = 2, .limits = {}, .active_mtu = Mtu::k4096}) {
    key = side.register_memory(region(), region_access);
    side.qp = TwoHcas::create(side, options);
    bring_up(options);
  }

  static constexpr AccessFlags kAll = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;

  std::span<std::byte> region() { return std::span(memory_).subspan(kGuard, kMemory); }
  uint64_t address() { return reinterpret_cast<uint64_t>(region().data()); }
  Rkey rkey() const { return {key.value}; }
  uint64_t& word_at(size_t offset) {
    return *reinterpret_cast<uint64_t*>(region().data() + offset);
  }

  std::vector<std::byte> encode(const HandMade& packet) const {
    const OpcodeInfo& info = kOpcodes[packet.opcode];
    OutgoingPacket built;
    begin_headers(built, {.opcode = packet.opcode,
                          .pad_count = pad_for(static_cast<uint32_t>(packet.payload)),
                          .destination_qpn = side.qp->qpn(),
                          .ack_request = packet.ack && !info.is_response,
                          .psn = Psn(packet.psn)});
    if (info.has(kRethFlag)) append(built, packet.reth);
    if (info.has(kAtomicEthFlag)) append(built, packet.atomic);
    if (info.has(kAethFlag)) append(built, packet.aeth);
    if (info.has(kAtomicAckEthFlag)) append(built, AtomicAckEth{packet.original});
    if (info.has(kImmediateFlag)) append_immediate(built, packet.immediate);
    if (info.has(kIethFlag)) append_invalidate(built, {packet.invalidate});
    std::vector<std::byte> bytes(built.headers.begin(),
                                 built.headers.begin() + built.header_length);
    for (size_t i = 0; i < packet.payload; ++i) {
      bytes.push_back(static_cast<std::byte>(0xa0 + i));
    }
    bytes.resize(bytes.size() + built.pad_length);
    return bytes;
  }

  // One packet arrives; returns everything that leaves in answer.
  Transcript in(const HandMade& packet) { return in(encode(packet)); }
  Transcript in(const std::vector<std::byte>& bytes) {
    arrive(bytes);
    return out();
  }
  // Arrives without giving the HCA a turn to send.
  void arrive(const HandMade& packet) { arrive(encode(packet)); }
  void arrive(const std::vector<std::byte>& bytes) {
    const auto parsed = parse(bytes);
    if (const DropReason* reason = std::get_if<DropReason>(&parsed)) {
      side.hca.count_drop(*reason);
      return;
    }
    side.hca.on_packet(std::get<PacketView>(parsed), {peer_.gid, side.gid, false}, now);
  }

  // Everything that can leave now, until nothing more does. The frames stay in `sent`.
  Transcript out() {
    Transcript transcript;
    while (side.hca.poll_transmit(side, 64, now) != 0) {
    }
    sent.assign(link_.begin(), link_.end());
    link_.clear();
    for (const Frame& frame : sent) transcript.push_back(describe(frame));
    return transcript;
  }

  PostError post_receive(uint32_t length, uint64_t wr_id = 1000) {
    const Sge piece{address(), length, key};
    return side.qp->post_recv({.wr_id = wr_id, .sges = {&piece, 1}});
  }
  // Posts one request over `length` bytes of the region and returns what leaves.
  Transcript post(SendOpcode opcode, uint32_t length, SendFlags flags = kSignaled) {
    const Sge piece{address(), length, key};
    SendRequest request;
    request.wr_id = next_wr_id++;
    request.sges = {&piece, 1};
    request.opcode = opcode;
    request.flags = flags;
    request.remote_address = 0x10000;
    request.rkey = {0x777};
    TwoHcas::require(side.qp->post_send(request) == PostError::kNone
                         ? Status(Done{})
                         : Status(Refusal{1, "post_send refused"}));
    side.hca.activate(*side.qp, now);
    return out();
  }

  // The only completion, or none.
  std::optional<Completion> completion() {
    const std::vector<Completion> all = side.poll();
    return all.size() == 1 ? std::optional(all[0]) : std::nullopt;
  }

  uint64_t drops(DropReason reason) const {
    return side.hca.counters().drops[static_cast<size_t>(reason)];
  }
  bool in_error() const { return side.qp->state() == QpState::kError; }
  // Whether the bytes around the region are as they were.
  bool guards_intact() const {
    const auto intact = [](std::span<const std::byte> bytes) {
      return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kCanary; });
    };
    return intact(std::span(memory_).first(kGuard)) && intact(std::span(memory_).last(kGuard));
  }
  // Whether the region itself is as it was, from `offset` on.
  bool untouched(size_t offset = 0) {
    const auto bytes = region().subspan(offset);
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kCanary; });
  }

 private:
  void bring_up(const ConnectOptions& options) {
    QpAttributes attributes = TwoHcas::attributes_of(side, peer_, kPeerQpn, options);
    attributes.rq_psn = Psn(options.client_psn);
    attributes.sq_psn = Psn(options.server_psn);
    for (const auto& [state, mask] :
         {std::pair{QpState::kInit, TwoHcas::kToInit}, std::pair{QpState::kRtr, TwoHcas::kToRtr},
          std::pair{QpState::kRts, TwoHcas::kToRts}}) {
      attributes.state = state;
      TwoHcas::require(side.hca.modify_qp(*side.qp, attributes, mask, now));
    }
  }

  std::vector<std::byte> memory_;
  std::deque<Frame> link_;
  std::deque<Frame> peer_link_;

 public:
  Side side;
  Lkey key;
  Instant now{1'000'000};
  uint64_t next_wr_id = 1;
  std::vector<Frame> sent;  // by the latest out()

 private:
  Side peer_;  // lends its address
};

}  // namespace uroce::transport::test
