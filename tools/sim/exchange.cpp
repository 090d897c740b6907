// Runs one operation over a link that loses chosen frames, under the same oracles as random runs.
#include "tools/sim/exchange.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "tools/sim/completion_oracle.hpp"
#include "tools/sim/host.hpp"
#include "tools/sim/model.hpp"
#include "tools/sim/wire_oracle.hpp"

namespace uroce::sim {

using transport::QpAttributes;
using transport::QpState;
using transport::SendOpcode;

namespace {

constexpr Mtu kMtu = Mtu::k256;
constexpr uint32_t kMaxLength = 3 * bytes_of(kMtu);
constexpr uint64_t kMemoryBytes = 8192;
constexpr uint64_t kWordOffset = 64;
constexpr uint64_t kTargetOffset = 512;  // with canaries before and behind
constexpr uint64_t kPoolOffset = 2048;
constexpr uint64_t kPoolBytes = 4096;
constexpr uint64_t kMaxFrames = 1'000;

ConnectionPlan exchange_plan() {
  ConnectionPlan plan;
  plan.mtu = kMtu;
  plan.max_length = kMaxLength;
  for (EndpointPlan& end : plan.ends) {
    end.capabilities = {4, 4, 2, 2, 0};
    end.max_rd_atomic = 2;
    end.ack_timeout = 5;  // 131 us
    end.retry_count = 7;
    end.rnr_retry = 7;
  }
  return plan;
}

}  // namespace

std::vector<Exchange> short_exchanges() {
  const uint32_t mtu = bytes_of(kMtu);
  std::vector<Exchange> exchanges;
  for (const SendOpcode opcode :
       {SendOpcode::kSend, SendOpcode::kSendWithImm, SendOpcode::kRdmaWrite,
        SendOpcode::kRdmaWriteWithImm, SendOpcode::kRdmaRead}) {
    for (const uint32_t length : {0u, 1u, mtu, mtu + 1, 3 * mtu}) {
      exchanges.push_back({opcode, length});
    }
  }
  exchanges.push_back({SendOpcode::kAtomicCmpAndSwp, 8});
  exchanges.push_back({SendOpcode::kAtomicFetchAndAdd, 8});
  return exchanges;
}

uint32_t exchange_mtu() {
  return bytes_of(kMtu);
}

class ExchangeRig::Impl final : private Observer {
 public:
  Impl(const Tamper* tamper, Transcript::Writer writer);
  Outcome run(const Exchange& exchange, uint64_t loss_mask);

 private:
  struct Side {
    std::unique_ptr<Memory> memory;
    std::unique_ptr<Host> host;
    transport::CompletionQueue* cq = nullptr;
    Endpoint end;
  };

  void on_transmit(Host& host, const transport::OutgoingPacket&,
                   const transport::PacketView& view) override {
    wire_oracle_.on_transmit(sides_[host.index()].end, view, clock_.now());
  }
  void on_receive(Host& host, const transport::PacketView& packet) override {
    Endpoint& end = sides_[host.index()].end;
    if (end.qp->state() != QpState::kError) wire_oracle_.on_arrival(end, packet, clock_.now());
  }

  void build(uint8_t index);
  Lkey grant(Side& side, PdId domain, uint64_t offset, uint64_t length);
  void restart(uint64_t loss_mask);
  void modify(Side& side, QpState state);
  std::vector<Piece> lend(Endpoint& end, uint32_t length);
  std::vector<transport::Sge> scatter_list(const Endpoint& end, const std::vector<Piece>& pieces);
  void post_receive(uint32_t length);
  void post(const Exchange& exchange);
  void poll();
  void judge_the_end();

  const ConnectionPlan plan_ = exchange_plan();
  const Tamper* tamper_;
  Random random_{1};
  VirtualClock clock_;
  Transcript transcript_;
  Verdict verdict_;
  WireOracle wire_oracle_{verdict_};
  CompletionOracle completion_oracle_{verdict_};
  Link link_;
  std::array<Side, 2> sides_;
  AtomicLedgers words_;
  std::vector<std::byte> noise_;
};

ExchangeRig::Impl::Impl(const Tamper* tamper, Transcript::Writer writer)
    : tamper_(tamper),
      transcript_(writer != nullptr, writer),
      link_(
          clock_,
          [] {
            LinkProfile profile;
            profile.masked_frames = kMaskedFrames;
            return profile;
          }(),
          Random(2),
          [this](Frame frame) { sides_[1 - frame.source].host->arrive(std::move(frame)); },
          [](uint8_t) {}),
      noise_(kMaxLength) {
  for (std::byte& byte : noise_) byte = static_cast<std::byte>(random_.next());
  for (uint8_t i = 0; i < 2; ++i) build(i);
}

Lkey ExchangeRig::Impl::grant(Side& side, PdId domain, uint64_t offset, uint64_t length) {
  transport::RegionAttributes region;
  region.pd = domain;
  region.address = side.memory->at(offset);
  region.length = length;
  region.iova = reinterpret_cast<uint64_t>(region.address);
  region.access = kAllRights;
  return Lkey{side.host->hca().register_region(region).value()};
}

void ExchangeRig::Impl::build(uint8_t index) {
  Side& side = sides_[index];
  side.memory = std::make_unique<Memory>(kMemoryBytes, random_.split());
  transport::HcaConfig config;
  config.slot = static_cast<uint8_t>(index + 1);
  config.limits.max_qp = 4;
  config.limits.max_mr = 8;
  config.limits.max_cq = 2;
  config.limits.max_pd = 2;
  side.host = std::make_unique<Host>(index, config, HostPace{}, random_.split(),
                                     Host::Parts{clock_, transcript_, verdict_, *this, tamper_});
  side.host->connect(link_);
  transport::Hca& hca = side.host->hca();
  const PdId domain = hca.create_pd().value();
  side.cq = hca.create_cq(32, nullptr).value();
  Endpoint& end = side.end;
  end.id = index;
  end.host = side.host.get();
  end.memory = side.memory.get();
  end.peer = &sides_[1 - index].end;
  end.plan = &plan_.ends[index];
  end.connection = &plan_;
  end.random = random_.split();
  const auto address = [&](uint64_t offset) {
    return reinterpret_cast<uint64_t>(side.memory->at(offset));
  };
  end.words = {kWordOffset, 8, address(kWordOffset),
               Rkey{grant(side, domain, kWordOffset, 8).value}};
  end.target = {kTargetOffset, kMaxLength, address(kTargetOffset),
                Rkey{grant(side, domain, kTargetOffset, kMaxLength).value}};
  end.pools.push_back({Pool(kPoolOffset, kPoolBytes), kPoolOffset, address(kPoolOffset),
                       grant(side, domain, kPoolOffset, kPoolBytes)});
  transport::QpInitAttributes attributes;
  attributes.pd = domain;
  attributes.send_cq = attributes.recv_cq = side.cq;
  attributes.capabilities = end.plan->capabilities;
  attributes.owner = &end;
  end.qp = hca.create_qp(attributes, clock_.now()).value();
  end.qpn = end.qp->qpn();
  end.granted = end.qp->init_attributes().capabilities;
}

void ExchangeRig::Impl::modify(Side& side, QpState state) {
  Endpoint& end = side.end;
  QpAttributes attributes;
  attributes.state = state;
  attributes.access = kAllRights;
  attributes.path_mtu = kMtu;
  attributes.destination_qpn = end.peer->qpn;
  attributes.rq_psn = end.peer->flow.start;
  attributes.sq_psn = end.flow.start;
  attributes.max_rd_atomic = attributes.max_dest_rd_atomic = end.plan->max_rd_atomic;
  attributes.min_rnr_timer = end.plan->min_rnr_timer;
  attributes.ack_timeout = end.plan->ack_timeout;
  attributes.retry_count = end.plan->retry_count;
  attributes.rnr_retry = end.plan->rnr_retry;
  attributes.address.source_gid = side.host->gid();
  attributes.address.destination_gid = end.peer->host->gid();
  attributes.address.path = side.host->path();
  transport::QpAttributeMask mask = transport::kQpState;
  if (state == QpState::kInit) {
    mask |= transport::kQpPkeyIndex | transport::kQpPort | transport::kQpAccessFlags;
  } else if (state == QpState::kRtr) {
    mask |= transport::kQpAv | transport::kQpPathMtu | transport::kQpDestQpn | transport::kQpRqPsn |
            transport::kQpMaxDestRdAtomic | transport::kQpMinRnrTimer;
  } else if (state == QpState::kRts) {
    mask |= transport::kQpSqPsn | transport::kQpTimeout | transport::kQpRetryCnt |
            transport::kQpRnrRetry | transport::kQpMaxRdAtomic;
  }
  const auto done = side.host->hca().modify_qp(*end.qp, attributes, mask, clock_.now());
  if (!done.ok()) verdict_.violate("modify refused: " + done.refusal().why);
  side.host->wake();
}

void ExchangeRig::Impl::restart(uint64_t loss_mask) {
  verdict_.clear();
  link_.restart(loss_mask);
  for (Side& side : sides_) {
    Endpoint& end = side.end;
    end.flow = Flow{};
    end.wire = WireHistory{};
    end.receives.clear();
    end.receives_completed = 0;
    end.receive_failed = false;
    end.failure.reset();
    // The wrap lies before, within or behind the exchange.
    end.flow.start = Psn(Psn::kMask - static_cast<uint32_t>(loss_mask % 4));
  }
  for (const QpState state : {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts}) {
    for (Side& side : sides_) modify(side, state);
  }
}

std::vector<Piece> ExchangeRig::Impl::lend(Endpoint& end, uint32_t length) {
  std::vector<Piece> pieces;
  // Two pieces where there may be two.
  const uint32_t first = length == 8 ? 0 : length / 3;
  for (const uint32_t part : {first, length - first}) {
    if (part == 0) continue;
    Piece piece;
    piece.length = part;
    piece.offset = end.pools[0].pool.allocate(part, 8).value();
    pieces.push_back(piece);
  }
  return pieces;
}

std::vector<transport::Sge> ExchangeRig::Impl::scatter_list(const Endpoint& end,
                                                            const std::vector<Piece>& pieces) {
  std::vector<transport::Sge> list;
  for (const Piece& piece : pieces) {
    const BufferPool& pool = end.pools[0];
    list.push_back({pool.address + piece.offset - pool.offset, piece.length, pool.lkey});
  }
  return list;
}

void ExchangeRig::Impl::post_receive(uint32_t length) {
  Endpoint& end = sides_[1].end;
  Receive receive;
  receive.wr_id = 7;
  receive.capacity = length;
  receive.pieces = lend(end, length);
  const auto list = scatter_list(end, receive.pieces);
  if (end.qp->post_recv({receive.wr_id, list}) != transport::PostError::kNone) {
    verdict_.violate("post_recv failed");
  }
  note_posted(end, std::move(receive));
  end.host->ring(*end.qp);
}

void ExchangeRig::Impl::post(const Exchange& exchange) {
  Endpoint& end = sides_[0].end;
  Operation operation;
  operation.wr_id = 5;
  operation.opcode = exchange.opcode;
  operation.length = exchange.length;
  operation.flags = transport::kSignaled;
  operation.signaled = true;
  operation.immediate = 0x01020304;
  operation.pieces = lend(end, exchange.length);
  const Window& window = operation.is_atomic() ? end.peer->words : end.peer->target;
  operation.remote_offset = window.offset;
  operation.remote_address = window.address;
  operation.rkey = window.rkey;
  operation.compare_add = random_.next();
  operation.swap = random_.next();
  words_.clear();
  if (operation.is_atomic()) {
    uint64_t value = 0;
    std::memcpy(&value, end.peer->memory->at(kWordOffset), sizeof value);
    words_.emplace_back(value);
    if (random_.coin()) operation.compare_add = value;
    operation.effect = end.peer->memory->expect(kWordOffset, 8, nullptr);
  } else if (!operation.is_read()) {
    operation.payload = gather(*end.memory, operation.pieces);
  }
  const auto list = scatter_list(end, operation.pieces);
  transport::SendRequest request;
  request.wr_id = operation.wr_id;
  request.sges = list;
  request.opcode = operation.opcode;
  request.flags = operation.flags;
  request.immediate = operation.immediate;
  request.remote_address = operation.remote_address;
  request.rkey = operation.rkey;
  request.compare_add = operation.compare_add;
  request.swap = operation.swap;
  if (end.qp->post_send(request) != transport::PostError::kNone) {
    verdict_.violate("post_send failed");
  }
  note_posted(end, std::move(operation));
  end.host->ring(*end.qp);
}

void ExchangeRig::Impl::poll() {
  std::array<transport::Completion, 4> buffer;
  for (Side& side : sides_) {
    if (side.cq->empty()) continue;
    const size_t found = side.cq->poll(buffer);
    std::vector<transport::Completion> completions(buffer.begin(),
                                                   buffer.begin() + static_cast<long>(found));
    if (tamper_ != nullptr && tamper_->on_poll) tamper_->on_poll(completions);
    for (const transport::Completion& completion : completions) {
      transcript_.line(clock_.now(),
                       fmt::format("host {} {}", side.host->index(), describe(completion)));
      if (completion.wr_id == 5) {
        completion_oracle_.on_send_completion(side.end, completion, words_);
      } else {
        completion_oracle_.on_receive_completion(side.end, completion);
      }
    }
  }
}

void ExchangeRig::Impl::judge_the_end() {
  Endpoint& requester = sides_[0].end;
  const Endpoint& responder = sides_[1].end;
  if (requester.flow.completed != 1) verdict_.violate("the operation did not complete");
  if (!requester.flow.failed && responder.receives_completed != responder.receives.size()) {
    verdict_.violate("the receive did not complete");
  }
  for (const Side& side : sides_) {
    transport::Hca& hca = side.host->hca();
    if (hca.next_deadline() != Instant::never()) verdict_.violate("a deadline is left");
    if (hca.transmit_pending()) verdict_.violate("a packet is left");
    if (const auto why = side.memory->check_all()) {
      verdict_.violate(fmt::format("memory of host {}: {}", side.host->index(), *why));
    }
  }
  if (!words_.empty()) {
    uint64_t value = 0;
    std::memcpy(&value, responder.memory->real(kWordOffset, 8).data(), sizeof value);
    if (requester.flow.failed) {
      const Operation& tried = requester.flow.operations.front();
      words_[0].add({0, tried.opcode == SendOpcode::kAtomicCmpAndSwp, tried.compare_add, tried.swap,
                     std::nullopt});
    }
    if (const auto why = words_[0].check(value)) verdict_.violate(*why);
  }
}

ExchangeRig::Outcome ExchangeRig::Impl::run(const Exchange& exchange, uint64_t loss_mask) {
  restart(loss_mask);
  const bool receives = exchange.opcode == SendOpcode::kSend ||
                        exchange.opcode == SendOpcode::kSendWithImm ||
                        exchange.opcode == SendOpcode::kRdmaWriteWithImm;
  if (receives) post_receive(exchange.length);
  post(exchange);
  while (verdict_.ok() && clock_.step()) {
    poll();
    if (link_.frames_sent() > kMaxFrames) verdict_.violate("too many frames: livelock");
  }
  if (verdict_.ok()) judge_the_end();
  for (Side& side : sides_) settle(side.end, verdict_);
  Outcome outcome;
  if (!verdict_.ok()) outcome.violation = verdict_.violations().front();
  outcome.gave_up = sides_[0].end.flow.failed;
  outcome.frames = link_.frames_sent();
  return outcome;
}

ExchangeRig::ExchangeRig(const Tamper* tamper, Transcript::Writer writer)
    : impl_(std::make_unique<Impl>(tamper, std::move(writer))) {}
ExchangeRig::~ExchangeRig() = default;

ExchangeRig::Outcome ExchangeRig::run(const Exchange& exchange, uint64_t loss_mask) {
  return impl_->run(exchange, loss_mask);
}

std::string replay_command(const Exchange& exchange, uint64_t loss_mask) {
  return fmt::format("uroce sim --exchange {} --length {} --mask {:#x}", name_of(exchange.opcode),
                     exchange.length, loss_mask);
}

}  // namespace uroce::sim
