// What the holder of a lane does, and how nothing is left undone when it turns away.
#include "datapath/lane.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "datapath/frame.hpp"
#include "icrc/icrc.hpp"

namespace uroce::datapath {

Lane::Lane(std::unique_ptr<Wire> wire, const transport::HcaConfig& config, std::vector<Gid> gids)
    : clock_(Clock::shared()),
      wire_(std::move(wire)),
      gids_(std::move(gids)),
      hca_(config, *this),
      deadline_ns_(Instant::never().ns) {}

Lane::~Lane() = default;

void Lane::ring(transport::QueuePair& qp) {
  doorbells_.ring(qp);
  // Pairs with the fence in serve_late_doorbells: either the holder sees the bell or we get the
  // lock.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!lock_.try_lock()) return;
  const Instant at = now();
  note_application_run();
  take_doorbells(at);
  transmit_burst(at);
  unlock_and_wake(true);
}

Lane::Run Lane::run_for_application() {
  if (!lock_.try_lock()) return Run::kBusy;
  wire_->note_polled();
  note_application_run();
  const bool worked = run(now());
  unlock_and_wake(true);
  return worked ? Run::kWorked : Run::kIdle;
}

Lane::Run Lane::run_for_background() {
  if (!lock_.try_lock_politely()) return Run::kBusy;
  const bool worked = run(now());
  unlock_and_wake(false);
  return worked ? Run::kWorked : Run::kIdle;
}

void Lane::background_sleeps_until(Instant wake_at) {
  background_wake_ns_.store(wake_at.ns, std::memory_order_relaxed);
  // Pairs with unlock_and_wake: one of the two sides sees the other's store.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool Lane::run(Instant now) {
  bool worked = take_doorbells(now);
  worked |= receive_burst(now);
  if (hca_.next_deadline() <= now) hca_.on_timeout(now);
  worked |= transmit_burst(now);
  return worked;
}

bool Lane::take_doorbells(Instant now) {
  return doorbells_.take_all([&](transport::DoorbellNode& node) {
    hca_.activate(static_cast<transport::QueuePair&>(node), now);
  });
}

bool Lane::receive_burst(Instant now) {
  std::array<Frame, kReceiveBurst> frames;
  const size_t count = wire_->receive(frames);
  if (count == 0) return false;
  for (size_t i = 0; i < count; ++i) receive_frame(frames[i], now);
  wire_->release();
  return true;
}

void Lane::receive_frame(const Frame& frame, Instant now) {
  const auto dissected = dissect_frame(frame);
  const auto* roce = std::get_if<RoceFrame>(&dissected);
  if (roce == nullptr) return hca_.count_drop(std::get<DropReason>(dissected));
  if (std::find(gids_.begin(), gids_.end(), roce->origin.destination_gid) == gids_.end()) {
    return hca_.count_drop(DropReason::kNotOurAddress);
  }
  if (!icrc::verify(roce->ip_packet)) return hca_.count_drop(DropReason::kBadIcrc);
  const auto parsed = transport::parse(roce->transport);
  const auto* packet = std::get_if<transport::PacketView>(&parsed);
  if (packet == nullptr) return hca_.count_drop(std::get<DropReason>(parsed));
  hca_.on_packet(*packet, roce->origin, now);
}

bool Lane::transmit_burst(Instant now) {
  size_t sent = 0;
  if (hca_.transmit_pending() || hca_.transmit_parked()) {
    sent = hca_.poll_transmit(*this, kTransmitBurst, now);
  }
  if (sent != 0) wire_->flush();
  return sent != 0;
}

bool Lane::can_send(const Path* path, Qpn destination_qpn, uint32_t payload_length) {
  reserved_path_ = path;
  reserved_ = wire_->reserve(*path, destination_qpn, frame_bytes_bound(*path, payload_length));
  return reserved_ != nullptr;
}

void Lane::send(const transport::OutgoingPacket& packet) {
  wire_->commit(build_frame(reserved_, *reserved_path_, packet));
}

void Lane::note_application_run() {
  application_runs_.store(application_runs_.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
  application_cpu_.store(sched_getcpu(), std::memory_order_relaxed);
}

void Lane::publish_deadline() {
  const bool watching = wire_->kick();
  deadline_ns_.store(hca_.next_deadline().ns, std::memory_order_relaxed);
  unfinished_.store(watching || hca_.transmit_pending(), std::memory_order_relaxed);
}

void Lane::unlock_and_wake(bool application) {
  publish_deadline();
  lock_.unlock();
  serve_late_doorbells();
  if (!application) return;
  // A sleeping background thread takes naps while the application runs the lane; only one that
  // sleeps long has to be told that something is due before it wakes.
  const int64_t wake_at = background_wake_ns_.load(std::memory_order_relaxed);
  if (wake_at == 0) return;
  const bool due_earlier = deadline_ns_.load(std::memory_order_relaxed) < wake_at;
  if (!due_earlier && !unfinished_.load(std::memory_order_relaxed)) return;
  constexpr int64_t kNapNs = 2'000'000;
  if (wake_at - now().ns < kNapNs) return;
  if (background_wake_ns_.exchange(0, std::memory_order_relaxed) != 0) wire_->wake();
}

// Work that was posted while we held the lock, by somebody who could not get it.
void Lane::serve_late_doorbells() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  while (!doorbells_.empty() && lock_.try_lock()) {
    const Instant at = now();
    take_doorbells(at);
    transmit_burst(at);
    publish_deadline();
    lock_.unlock();
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

// A control verb may have queued acknowledgements, flushes or timers.
void Lane::after_control() {
  transmit_burst(now());
  unlock_and_wake(true);
}

void Lane::on_completion_event(transport::CompletionQueue& cq) {
  if (auto* sink = sink_.load(std::memory_order_acquire)) sink->on_completion_event(cq);
}

void Lane::on_async_event(transport::AsyncEventType type, void* subject) {
  if (auto* sink = sink_.load(std::memory_order_acquire)) sink->on_async_event(type, subject);
}

void Lane::lock_consumer(transport::CompletionQueue& cq) {
  if (auto* sink = sink_.load(std::memory_order_acquire)) sink->lock_consumer(cq);
}

void Lane::unlock_consumer(transport::CompletionQueue& cq) {
  if (auto* sink = sink_.load(std::memory_order_acquire)) sink->unlock_consumer(cq);
}

}  // namespace uroce::datapath
