// One host of the simulation: an Hca with its lane's loop, driven by the virtual clock.
#pragma once

#include <cstdint>
#include <deque>

#include "datapath/path.hpp"
#include "tools/sim/link.hpp"
#include "tools/sim/random.hpp"
#include "tools/sim/tamper.hpp"
#include "tools/sim/transcript.hpp"
#include "tools/sim/verdict.hpp"
#include "tools/sim/virtual_clock.hpp"
#include "transport/hca.hpp"

namespace uroce::sim {

class Host;

// What watches a host. Called in the order of what happens; must not call back into the Hca.
class Observer {
 public:
  virtual ~Observer() = default;
  // Before the link decides the frame's fate.
  virtual void on_transmit(Host&, const transport::OutgoingPacket&, const transport::PacketView&) {}
  // Just before the Hca sees the packet.
  virtual void on_receive(Host&, const transport::PacketView&) {}
  virtual void on_completion_event(Host&, transport::CompletionQueue&) {}
  virtual void on_async_event(Host&, transport::AsyncEventType, void* /*subject*/) {}
  // Completions may have been produced.
  virtual void after_progress(Host&) {}
};

// How the lane of a host behaves.
struct HostPace {
  int64_t turn_gap_ns = 200;      // between two turns of the lane's loop while there is work
  int64_t turn_jitter_ns = 0;     // up to this much more
  uint32_t receive_burst = 32;    // packets per turn
  uint32_t transmit_budget = 32;  // packets per turn
};

class Host final : public transport::EventSink, public transport::TransmitSink {
 public:
  struct Parts {
    VirtualClock& clock;
    Transcript& transcript;
    Verdict& verdict;
    Observer& observer;
    const Tamper* tamper;  // may be null
  };

  Host(uint8_t index, const transport::HcaConfig& config, const HostPace& pace, Random random,
       const Parts& parts);

  uint8_t index() const { return index_; }
  transport::Hca& hca() { return hca_; }
  Gid gid() const { return gid_; }
  static Gid gid_of(uint8_t index) {
    return Gid::from_ipv4(10, 0, 0, static_cast<uint8_t>(index + 1));
  }
  // The route to the other host: opaque to transport.
  const Path* path() const { return &path_; }
  void connect(Link& link) { link_ = &link; }

  // A frame from the link; the lane finds it in its next turn.
  void arrive(Frame frame);
  // Work was posted to that queue pair, or its state was changed.
  void ring(transport::QueuePair& qp);
  // Plans a turn of the lane's loop soon: after a control call, or when the link has room again.
  void wake();
  uint64_t packets_sent() const { return packets_sent_; }
  uint64_t waiting_frames() const { return received_.size(); }

  // EventSink
  void on_completion_event(transport::CompletionQueue& cq) override;
  void on_async_event(transport::AsyncEventType type, void* subject) override;
  void lock_consumer(transport::CompletionQueue&) override { ++consumer_locks_; }
  void unlock_consumer(transport::CompletionQueue&) override { --consumer_locks_; }
  // TransmitSink
  bool can_send(const Path* path, Qpn destination_qpn, uint32_t payload_length) override;
  void send(const transport::OutgoingPacket& packet) override;

 private:
  void plan_turn(Instant when);
  void turn();
  void receive(const Frame& frame);
  Frame serialise(const transport::OutgoingPacket& packet);

  const uint8_t index_;
  const Gid gid_;
  const HostPace pace_;
  Random random_;
  Parts parts_;
  Path path_;
  Link* link_ = nullptr;
  transport::Hca hca_;
  std::deque<Frame> received_;
  Instant planned_ = Instant::never();  // the next turn
  bool may_send_ = false;               // can_send said yes and no packet was sent since
  uint32_t promised_payload_ = 0;
  int consumer_locks_ = 0;
  uint64_t packets_sent_ = 0;
};

}  // namespace uroce::sim
