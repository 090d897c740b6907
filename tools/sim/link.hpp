// A seeded link between two hosts: loss, duplication, reordering, corruption, delay, ECN marks,
// blackholes and bounded queues.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "tools/sim/random.hpp"
#include "tools/sim/virtual_clock.hpp"
#include "transport/types.hpp"

namespace uroce::sim {

// A transport packet on the link: BTH to pad, as datapath would put it behind UDP.
struct Frame {
  uint64_t number = 0;  // counts both directions from 0
  uint8_t source = 0;   // host 0 or 1
  Qpn destination_qpn;
  bool congestion_experienced = false;
  bool corrupt = false;  // the ICRC would not verify
  std::vector<std::byte> bytes;
};

// Chances are per million.
struct LinkProfile {
  uint32_t loss = 0;
  uint32_t duplication = 0;
  uint32_t reordering = 0;
  uint32_t corruption = 0;
  uint32_t ecn_marking = 0;
  int64_t delay_ns = 1'000;
  int64_t jitter_ns = 0;      // added to the delay; does not reorder
  int64_t reorder_ns = 0;     // a reordered frame comes up to this much later
  int64_t ns_per_frame = 50;  // the wire's own pace
  uint32_t capacity = 0;      // frames queued per direction before can_send is false; 0: unbounded
  bool deliver_corrupt = false;  // as if the ICRC had verified by chance
  // The first `masked_frames` frames, both directions counted, are lost if their bit is set, and
  // suffer nothing else.
  uint64_t loss_mask = 0;
  uint32_t masked_frames = 0;
};

// What happened to a frame at the entry of the link (bits).
enum Fate : uint8_t {
  kDelivered = 0,
  kLost = 1,
  kDuplicated = 2,
  kReordered = 4,
  kCorrupted = 8,
  kBlackholed = 16,
  kMarked = 32,
};

class Link {
 public:
  using Deliver = std::function<void(Frame)>;
  using Room = std::function<void(uint8_t source)>;

  // `deliver` is called when a frame arrives; `room` when a direction that was found full has room
  // again.
  Link(VirtualClock& clock, const LinkProfile& profile, Random random, Deliver deliver, Room room);

  bool has_room(uint8_t source);
  // Returns Fate bits.
  uint8_t send(Frame frame);
  // From now on every frame to that queue pair vanishes.
  void open_blackhole(Qpn destination_qpn) { blackholes_.insert(destination_qpn.value); }
  void close_blackhole(Qpn destination_qpn) { blackholes_.erase(destination_qpn.value); }
  uint64_t frames_sent() const { return next_number_; }
  uint64_t frames_in_flight() const { return in_flight_; }
  // Starts afresh: frame numbers from 0, another mask. Nothing may be in flight.
  void restart(uint64_t loss_mask);

 private:
  struct Direction {
    Instant busy_until;    // when the last frame leaves the sender
    Instant last_arrival;  // frames that are not reordered arrive after it
    uint32_t queued = 0;
    bool refused = false;
  };

  uint8_t draw_fate(const Frame& frame);
  void deliver_at(Instant when, Frame frame);

  VirtualClock& clock_;
  LinkProfile profile_;
  Random random_;
  Deliver deliver_;
  Room room_;
  std::array<Direction, 2> directions_;
  std::set<uint32_t> blackholes_;
  uint64_t next_number_ = 0;
  uint64_t in_flight_ = 0;
};

}  // namespace uroce::sim
