// A lane: one wire endpoint, the HCA behind it, and the lock under which whoever waits does the
// work.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/clock.hpp"
#include "datapath/doorbell_list.hpp"
#include "datapath/lane_lock.hpp"
#include "datapath/wire.hpp"
#include "transport/hca.hpp"

namespace uroce::datapath {

class Lane final : private transport::EventSink, private transport::TransmitSink {
 public:
  enum class Run : uint8_t {
    kBusy,    // somebody else holds the lane
    kIdle,    // nothing was there to do
    kWorked,  // frames or posted work were handled
  };

  // `gids` are the addresses that frames may be destined to.
  Lane(std::unique_ptr<Wire> wire, const transport::HcaConfig& config, std::vector<Gid> gids);
  ~Lane();

  Wire& wire() { return *wire_; }
  Instant now() const { return clock_.now(); }

  // Control verbs: runs act(hca, now) under the lock, then whatever it set in motion.
  template <typename Act>
  auto with_hca(Act&& act) {
    lock_.lock();
    take_doorbells(now());
    auto result = act(hca_, now());
    after_control();
    return result;
  }

  void set_event_sink(transport::EventSink* sink) { sink_.store(sink, std::memory_order_release); }

  // Data verbs, from application threads.
  void ring(transport::QueuePair& qp);
  Run run_for_application();
  // From the background thread.
  Run run_for_background();

  // Until when the background thread sleeps; the application's threads wake it when something is
  // due earlier.
  void background_sleeps_until(Instant wake_at);
  Instant next_deadline() const { return {deadline_ns_.load(std::memory_order_acquire)}; }
  // Something waits that only a run of the lane moves: queued packets, or frames that a sleeping
  // peer has not seen.
  bool unfinished() const { return unfinished_.load(std::memory_order_acquire); }

  // Grows with each run by an application thread, and where the last one ran.
  uint64_t application_runs() const { return application_runs_.load(std::memory_order_relaxed); }
  int application_cpu() const { return application_cpu_.load(std::memory_order_relaxed); }

 private:
  void on_completion_event(transport::CompletionQueue& cq) override;
  void on_async_event(transport::AsyncEventType type, void* subject) override;
  void lock_consumer(transport::CompletionQueue& cq) override;
  void unlock_consumer(transport::CompletionQueue& cq) override;
  bool can_send(const Path* path, Qpn destination_qpn, uint32_t payload_length) override;
  void send(const transport::OutgoingPacket& packet) override;

  bool take_doorbells(Instant now);
  bool receive_burst(Instant now);
  void receive_frame(const Frame& frame, Instant now);
  bool transmit_burst(Instant now);
  bool run(Instant now);
  void note_application_run();
  void publish_deadline();
  void unlock_and_wake(bool application);
  void serve_late_doorbells();
  void after_control();

  static constexpr size_t kReceiveBurst = 32;   // frames per run: bounds how long the lock is held
  static constexpr size_t kTransmitBurst = 64;  // packets per run

  LaneLock lock_;
  DoorbellList doorbells_;
  const Clock& clock_;
  std::unique_ptr<Wire> wire_;
  std::vector<Gid> gids_;
  transport::Hca hca_;
  std::atomic<transport::EventSink*> sink_{nullptr};
  const Path* reserved_path_ = nullptr;  // between can_send and send
  std::byte* reserved_ = nullptr;

  alignas(64) std::atomic<int64_t> deadline_ns_;  // the HCA's next deadline, as of the last unlock
  std::atomic<int64_t> background_wake_ns_{0};    // 0: it is awake
  std::atomic<bool> unfinished_{false};
  std::atomic<uint64_t> application_runs_{0};
  std::atomic<int> application_cpu_{-1};
};

}  // namespace uroce::datapath
