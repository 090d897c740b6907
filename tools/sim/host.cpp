// Runs the lane's loop of one host: receive a burst, serve the timers, transmit.
#include "tools/sim/host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace uroce::sim {

using transport::OutgoingPacket;
using transport::PacketView;

Host::Host(uint8_t index, const transport::HcaConfig& config, const HostPace& pace, Random random,
           const Parts& parts)
    : index_(index),
      gid_(gid_of(index)),
      pace_(pace),
      random_(random),
      parts_(parts),
      hca_(config, *this) {}

void Host::arrive(Frame frame) {
  received_.push_back(std::move(frame));
  wake();
}

void Host::ring(transport::QueuePair& qp) {
  hca_.activate(qp, parts_.clock.now());
  wake();
}

void Host::wake() {
  plan_turn(parts_.clock.now() + static_cast<int64_t>(random_.below(pace_.turn_jitter_ns + 1)));
}

void Host::plan_turn(Instant when) {
  if (when >= planned_) return;
  planned_ = when;
  parts_.clock.schedule(when, [this, when] {
    if (planned_ != when) return;  // an earlier turn took its place
    planned_ = Instant::never();
    turn();
  });
}

void Host::turn() {
  const Instant now = parts_.clock.now();
  for (uint32_t i = 0; i < pace_.receive_burst && !received_.empty(); ++i) {
    const Frame frame = std::move(received_.front());
    received_.pop_front();
    receive(frame);
  }
  if (hca_.next_deadline() <= now) {
    hca_.on_timeout(now);
    if (hca_.next_deadline() <= now) {
      parts_.verdict.violate(
          fmt::format("host {}: a deadline has passed and on_timeout left it", index_));
      return;
    }
  }
  const size_t sent = hca_.poll_transmit(*this, pace_.transmit_budget, now);
  if (sent > pace_.transmit_budget) {
    parts_.verdict.violate(fmt::format("host {}: poll_transmit exceeded its budget", index_));
  }
  if (sent == 0 && hca_.transmit_pending() && received_.empty()) {
    parts_.verdict.violate(
        fmt::format("host {}: transmit_pending, yet poll_transmit sends nothing", index_));
    return;
  }
  parts_.observer.after_progress(*this);
  if (!received_.empty() || hca_.transmit_pending()) {
    plan_turn(now + std::max<int64_t>(1, pace_.turn_gap_ns) +
              static_cast<int64_t>(random_.below(pace_.turn_jitter_ns + 1)));
  } else if (hca_.next_deadline() != Instant::never()) {
    plan_turn(hca_.next_deadline());
  }
}

void Host::receive(const Frame& frame) {
  if (frame.corrupt) {
    hca_.count_drop(DropReason::kBadIcrc);
    return;
  }
  const auto parsed = transport::parse(frame.bytes);
  if (const auto* reason = std::get_if<DropReason>(&parsed)) {
    hca_.count_drop(*reason);
    return;
  }
  const auto& packet = std::get<PacketView>(parsed);
  if (parts_.transcript.enabled()) {
    parts_.transcript.line(parts_.clock.now(), fmt::format("  {} <=    #{} {}", index_,
                                                           frame.number, packet.opcode->name));
  }
  parts_.observer.on_receive(*this, packet);
  transport::PacketOrigin origin;
  origin.source_gid = gid_of(frame.source);
  origin.destination_gid = gid_;
  origin.congestion_experienced = frame.congestion_experienced;
  hca_.on_packet(packet, origin, parts_.clock.now());
}

void Host::on_completion_event(transport::CompletionQueue& cq) {
  parts_.observer.on_completion_event(*this, cq);
}

void Host::on_async_event(transport::AsyncEventType type, void* subject) {
  parts_.observer.on_async_event(*this, type, subject);
}

bool Host::can_send(const Path* path, Qpn, uint32_t payload_length) {
  if (path != &path_) {
    parts_.verdict.violate(fmt::format("host {}: can_send asked for a path of nobody", index_));
  }
  may_send_ = link_->has_room(index_);
  promised_payload_ = payload_length;
  return may_send_;
}

void Host::send(const OutgoingPacket& packet) {
  if (!std::exchange(may_send_, false)) {
    parts_.verdict.violate(fmt::format("host {}: send without can_send", index_));
  }
  if (packet.payload_length > promised_payload_) {
    parts_.verdict.violate(fmt::format("host {}: {} bytes of payload, can_send was asked for {}",
                                       index_, packet.payload_length, promised_payload_));
  }
  ++packets_sent_;
  Frame frame = serialise(packet);
  if (parts_.tamper != nullptr && parts_.tamper->before_oracle) parts_.tamper->before_oracle(frame);
  const auto parsed = transport::parse(frame.bytes);
  const auto* view = std::get_if<PacketView>(&parsed);
  if (view == nullptr) {
    parts_.verdict.violate(fmt::format("host {} sent a malformed packet: {}", index_,
                                       uroce::name_of(std::get<DropReason>(parsed))));
    return;
  }
  std::string text;
  if (parts_.transcript.enabled()) text = describe(*view);
  parts_.observer.on_transmit(*this, packet, *view);
  if (parts_.tamper != nullptr && parts_.tamper->on_wire) parts_.tamper->on_wire(frame);
  const uint64_t number = link_->frames_sent();
  const uint8_t fate = link_->send(std::move(frame));
  if (parts_.transcript.enabled()) {
    parts_.transcript.line(parts_.clock.now(), fmt::format("{} => {} #{} {}{}", index_, 1 - index_,
                                                           number, text, describe_fate(fate)));
  }
}

Frame Host::serialise(const OutgoingPacket& packet) {
  Frame frame;
  frame.source = index_;
  frame.destination_qpn = packet.destination_qpn;
  frame.bytes.reserve(packet.header_length + packet.payload_length + packet.pad_length);
  frame.bytes.assign(packet.headers.begin(), packet.headers.begin() + packet.header_length);
  uint32_t described = 0;
  for (size_t i = 0; i < packet.segment_count; ++i) {
    const transport::Segment& segment = packet.segments[i];
    frame.bytes.insert(frame.bytes.end(), segment.data, segment.data + segment.length);
    described += segment.length;
  }
  if (described != packet.payload_length) {
    parts_.verdict.violate(fmt::format("host {}: segments hold {} bytes, payload_length says {}",
                                       index_, described, packet.payload_length));
  }
  frame.bytes.insert(frame.bytes.end(), packet.pad_length, std::byte{0});
  return frame;
}

}  // namespace uroce::sim
