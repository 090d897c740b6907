// Fuzz target: sequences of packets, posts, timeouts and turns to send against an HCA with two
// connected queue pairs. Input: a program of the steps below, one byte each with their operands.
//
// Whatever comes: no assertion fails, no byte outside granted memory changes, what is sent can be
// parsed, work completes at most once, and time goes on.
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <set>

#include "tests/fuzz/target.hpp"
#include "tests/unit/transport/two_hcas.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;
using uroce::tests::expect;

namespace {

// Reads the program; zeros after its end.
class Program {
 public:
  Program(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool done() const { return at_ == end_; }
  uint8_t byte() { return at_ == end_ ? uint8_t{0} : *at_++; }
  uint32_t below(uint32_t bound) { return byte() % bound; }
  uint64_t word() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  std::vector<std::byte> bytes(size_t count) {
    std::vector<std::byte> taken(count);
    for (std::byte& each : taken) each = std::byte{byte()};
    return taken;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

// Memory with bytes between and around the regions that nobody may touch.
class Arena {
 public:
  static constexpr size_t kGuard = 512, kGranted = 8192, kOther = 1024;
  static constexpr std::byte kCanary{0xc5};

  std::span<std::byte> granted() { return span_at(kGuard, kGranted); }
  std::span<std::byte> read_only() { return span_at(2 * kGuard + kGranted, kOther); }
  std::span<std::byte> foreign() { return span_at(3 * kGuard + kGranted + kOther, kOther); }

  void check() const {
    constexpr size_t kRest = kGuard + kGranted;
    const bool intact =
        std::memcmp(bytes_.data(), pristine_.data(), kGuard) == 0 &&
        std::memcmp(bytes_.data() + kRest, pristine_.data() + kRest, bytes_.size() - kRest) == 0;
    expect(intact, "memory that was not granted for writing keeps its bytes");
  }

 private:
  std::span<std::byte> span_at(size_t offset, size_t size) {
    return std::span(bytes_).subspan(offset, size);
  }

  std::vector<std::byte> bytes_ =
      std::vector<std::byte>(4 * kGuard + kGranted + 2 * kOther, kCanary);
  const std::vector<std::byte> pristine_ = bytes_;
};

uint64_t address_of(std::span<std::byte> bytes) {
  return reinterpret_cast<uint64_t>(bytes.data());
}

constexpr uint32_t kMtu = 256;
constexpr Gid kPeerGid = Gid::from_ipv4(127, 0, 0, 9);
constexpr AccessFlags kAll = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;

class Subject {
 public:
  Subject()
      : side_(false, link_, {.slot = 1, .seed = 1, .limits = {}, .active_mtu = Mtu::k4096}),
        other_pd_(*side_.hca.create_pd()),
        read_only_(side_.register_memory(arena_.read_only(), kRemoteRead)),
        foreign_(*side_.hca.register_region({.pd = other_pd_,
                                             .address = arena_.foreign().data(),
                                             .length = Arena::kOther,
                                             .iova = address_of(arena_.foreign()),
                                             .access = kAll})) {
    grant();
    for (QueuePair*& qp : qps_) {
      qp = TwoHcas::create(side_, options());
      bring_up(*qp);
    }
  }

  void step(Program& program) {
    switch (program.below(12)) {
      case 0:
      case 1:
      case 2:
        request(program);
        break;
      case 3:
      case 4:
        response(program);
        break;
      case 5:
        raw(program);
        break;
      case 6:
        transmit(program);
        break;
      case 7:
        wait(program);
        break;
      case 8:
        post_receive(program);
        break;
      case 9:
      case 10:
        post_send(program);
        break;
      case 11:
        control(program);
        break;
    }
    poll();
    arena_.check();
    if (!granted_) {
      expect(std::memcmp(arena_.granted().data(), snapshot_.data(), snapshot_.size()) == 0,
             "memory whose registration ended keeps its bytes");
    }
  }

  // Everything that is still due happens, and comes to an end.
  void finish() {
    for (int i = 0; i < 2000; ++i) {
      send(64);
      poll();
      const Instant next = side_.hca.next_deadline();
      if (next == Instant::never()) return;
      now_ = next;
      side_.hca.on_timeout(now_);
      expect(side_.hca.next_deadline() > now_, "a deadline that was served is over");
    }
  }

 private:
  static ConnectOptions options() {
    ConnectOptions made;
    made.capabilities = {16, 16, 4, 4, 64};
    made.client_psn = 0xfffff8;  // near the wrap
    made.server_psn = 0xfffffc;
    made.rnr_retry = 3;
    made.retry_count = 3;
    return made;
  }

  void bring_up(QueuePair& qp) {
    QpAttributes attributes = TwoHcas::attributes_of(side_, side_, {0x020007}, options());
    attributes.address.destination_gid = kPeerGid;
    for (const auto& [state, mask] :
         {std::pair{QpState::kInit, TwoHcas::kToInit}, std::pair{QpState::kRtr, TwoHcas::kToRtr},
          std::pair{QpState::kRts, TwoHcas::kToRts}}) {
      attributes.state = state;
      TwoHcas::require(side_.hca.modify_qp(qp, attributes, mask, now_));
    }
  }

  void grant() {
    key_ = side_.register_memory(arena_.granted(), kAll);
    granted_ = true;
  }
  void revoke() {
    if (!side_.hca.deregister_region(key_)) return;
    granted_ = false;
    snapshot_.assign(arena_.granted().begin(), arena_.granted().end());
  }

  QueuePair& pick_qp(Program& program) { return *qps_[program.below(2)]; }

  uint32_t pick_key(Program& program) {
    switch (program.below(8)) {
      case 0:
        return read_only_.value;
      case 1:
        return foreign_;
      case 2:
        return static_cast<uint32_t>(program.word());
      default:
        return key_.value;
    }
  }

  uint64_t pick_address(Program& program) {
    switch (program.below(8)) {
      case 0:
        return address_of(arena_.read_only()) + program.byte();
      case 1:
        return address_of(arena_.foreign()) + program.byte();
      case 2:
        return program.word();
      case 3:
        return address_of(arena_.granted()) + Arena::kGranted - program.byte();
      default:
        return address_of(arena_.granted()) + program.byte() * 8u;
    }
  }

  uint32_t pick_length(Program& program) {
    constexpr uint32_t kLengths[] = {0, 1, 8, kMtu - 1, kMtu, kMtu + 1, 2 * kMtu, 5 * kMtu + 3};
    const uint32_t choice = program.below(10);
    if (choice < std::size(kLengths)) return kLengths[choice];
    return choice == 8 ? program.byte() : static_cast<uint32_t>(program.word());
  }

  static Psn near(Psn psn, uint8_t choice) {
    if (choice < 128) return psn;
    return psn + (static_cast<uint32_t>(choice) - 192);
  }

  void request(Program& program) {
    QueuePair& qp = pick_qp(program);
    constexpr uint8_t kRequests[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 19, 20, 22, 23};
    const uint8_t code = kRequests[program.below(std::size(kRequests))];
    const Psn psn = near(side_.hca.query_qp(qp).rq_psn, program.byte());
    const uint32_t length = pick_length(program);
    const Reth reth{pick_address(program), {pick_key(program)}, length};
    const AtomicEth atomic{reth.virtual_address, reth.rkey, program.byte(), program.byte()};
    // Mostly the payload that the headers promise.
    uint32_t payload = length;
    if (kOpcodes[code].position != Position::kOnly && program.below(4) != 0) payload = kMtu;
    if (program.below(8) == 0) payload = program.byte() * 3u;
    if (!kOpcodes[code].carries_payload) payload = 0;
    payload = std::min(payload, 4096u);

    OutgoingPacket packet;
    begin(packet, qp, code, psn, payload, program.below(4) != 0);
    if (kOpcodes[code].has(kRethFlag)) append(packet, reth);
    if (kOpcodes[code].has(kAtomicEthFlag)) append(packet, atomic);
    if (kOpcodes[code].has(kImmediateFlag)) append_immediate(packet, 0x01020304);
    if (kOpcodes[code].has(kIethFlag)) append_invalidate(packet, {key_.value});
    arrive(packet, payload);
  }

  void response(Program& program) {
    QueuePair& qp = pick_qp(program);
    const uint8_t code = static_cast<uint8_t>(0x0d + program.below(6));
    const Psn last = side_.hca.query_qp(qp).sq_psn + Psn::kMask;
    const uint8_t choice = program.byte();
    const Psn psn = choice < 128 ? last + (0u - choice % 8) : near(last, choice);
    uint32_t payload = kOpcodes[code].carries_payload ? pick_length(program) : 0;
    payload = std::min(payload, 4096u);
    OutgoingPacket packet;
    begin(packet, qp, code, psn, payload, false);
    const uint8_t syndrome = program.byte();
    const Aeth aeth{program.below(2) == 0 ? ack_syndrome() : syndrome, 1};
    if (kOpcodes[code].has(kAethFlag)) append(packet, aeth);
    if (kOpcodes[code].has(kAtomicAckEthFlag)) append(packet, AtomicAckEth{7});
    arrive(packet, payload);
  }

  // Any bytes at all, addressed to a queue pair of ours.
  void raw(Program& program) {
    QueuePair& qp = pick_qp(program);
    std::vector<std::byte> bytes = program.bytes(program.byte());
    if (bytes.size() >= Bth::kSize) store_be32(bytes.data() + 4, qp.qpn().value);
    deliver(bytes);
  }

  static void begin(OutgoingPacket& packet, const QueuePair& qp, uint8_t code, Psn psn,
                    uint32_t payload, bool ack) {
    begin_headers(packet, {.opcode = code,
                           .pad_count = pad_for(payload),
                           .destination_qpn = qp.qpn(),
                           .ack_request = ack,
                           .psn = psn});
  }

  void arrive(const OutgoingPacket& packet, uint32_t payload) {
    std::vector<std::byte> bytes(packet.headers.begin(),
                                 packet.headers.begin() + packet.header_length);
    bytes.resize(bytes.size() + payload, std::byte{0x11});
    bytes.resize(bytes.size() + packet.pad_length);
    deliver(bytes);
  }

  void deliver(const std::vector<std::byte>& bytes) {
    const auto parsed = parse(bytes);
    if (const auto* view = std::get_if<PacketView>(&parsed)) {
      side_.hca.on_packet(*view, {kPeerGid, side_.gid, false}, now_);
    }
  }

  void transmit(Program& program) {
    side_.room = program.below(4) == 0 ? program.below(3) : ~size_t{0};
    send(program.byte());
    side_.room = ~size_t{0};
  }
  void send(size_t budget) {
    expect(side_.hca.poll_transmit(side_, budget, now_) <= budget, "the budget is kept");
    for (const Frame& frame : link_) {
      const auto parsed = parse(frame.bytes);
      expect(std::holds_alternative<PacketView>(parsed), "what is sent can be parsed");
    }
    link_.clear();
  }

  void wait(Program& program) {
    now_ = now_ + (int64_t{1} << program.below(32));
    side_.hca.on_timeout(now_);
    expect(side_.hca.next_deadline() > now_, "a deadline that was served is over");
  }

  Sge pick_sge(Program& program) {
    const uint32_t length = std::min(pick_length(program), 4096u);
    return {pick_address(program), length, {pick_key(program)}};
  }

  void post_receive(Program& program) {
    QueuePair& qp = pick_qp(program);
    const Sge sges[] = {pick_sge(program), pick_sge(program)};
    const ReceiveRequest request{next_id_, std::span(sges).first(program.below(3))};
    if (qp.post_recv(request) != PostError::kNone) return;
    outstanding_.insert({&qp, next_id_++});
    if (qp.state() == QpState::kError) side_.hca.activate(qp, now_);
  }

  void post_send(Program& program) {
    QueuePair& qp = pick_qp(program);
    const Sge sges[] = {pick_sge(program), pick_sge(program)};
    SendRequest request;
    request.wr_id = next_id_;
    request.opcode = static_cast<SendOpcode>(program.below(7));
    request.flags = kSignaled | (program.byte() & (kFence | kSolicited));
    request.sges = std::span(sges).first(program.below(3));
    request.remote_address = 0x1000;
    request.compare_add = program.byte();
    // Inline data is read when it is posted: from memory that is really there.
    const Sge here{address_of(arena_.granted()), program.below(64), key_};
    if (program.below(4) == 0) {
      request.flags |= kInline;
      request.sges = std::span(&here, 1);
    }
    if (qp.post_send(request) != PostError::kNone) return;
    outstanding_.insert({&qp, next_id_++});
    side_.hca.activate(qp, now_);
  }

  void control(Program& program) {
    QueuePair& qp = pick_qp(program);
    QpAttributes attributes;
    switch (program.below(6)) {
      case 0:
        attributes.state = QpState::kError;
        TwoHcas::require(side_.hca.modify_qp(qp, attributes, kQpState, now_));
        break;
      case 1:
        revoke();
        break;
      case 2:
        if (!granted_) grant();
        break;
      default:  // sequences soon end in ERROR: start again
        attributes.state = QpState::kReset;
        TwoHcas::require(side_.hca.modify_qp(qp, attributes, kQpState, now_));
        std::erase_if(outstanding_, [&qp](const auto& work) { return work.first == &qp; });
        bring_up(qp);
        break;
    }
  }

  void poll() {
    std::array<Completion, 16> batch;
    while (const size_t count = side_.cq->poll(batch)) {
      for (const Completion& completion : std::span(batch).first(count)) {
        const QueuePair* qp = completion.qpn == qps_[0]->qpn() ? qps_[0] : qps_[1];
        expect(completion.qpn == qp->qpn(), "a completion names its queue pair");
        expect(outstanding_.erase({qp, completion.wr_id}) == 1, "work completes once");
      }
    }
  }

  std::deque<Frame> link_;
  Arena arena_;
  Side side_;
  PdId other_pd_;
  Lkey read_only_;
  uint32_t foreign_;
  Lkey key_;
  bool granted_ = false;
  std::vector<std::byte> snapshot_;
  std::array<QueuePair*, 2> qps_{};
  std::set<std::pair<const QueuePair*, uint64_t>> outstanding_;
  uint64_t next_id_ = 1;
  Instant now_{1'000'000};
};

constexpr int kLongestProgram = 500;  // steps

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Program program(data, size);
  const auto subject = std::make_unique<Subject>();
  for (int i = 0; i < kLongestProgram && !program.done(); ++i) subject->step(program);
  subject->finish();
  return 0;
}
