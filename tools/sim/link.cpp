// Decides each frame's fate and delivers it at its time.
#include "tools/sim/link.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace uroce::sim {

Link::Link(VirtualClock& clock, const LinkProfile& profile, Random random, Deliver deliver,
           Room room)
    : clock_(clock),
      profile_(profile),
      random_(random),
      deliver_(std::move(deliver)),
      room_(std::move(room)) {}

bool Link::has_room(uint8_t source) {
  Direction& direction = directions_[source];
  if (profile_.capacity == 0 || direction.queued < profile_.capacity) return true;
  direction.refused = true;
  return false;
}

uint8_t Link::draw_fate(const Frame& frame) {
  if (frame.number < profile_.masked_frames) {
    return (profile_.loss_mask >> frame.number & 1) != 0 ? kLost : kDelivered;
  }
  uint8_t fate = kDelivered;
  if (random_.chance(profile_.loss)) fate |= kLost;
  if (random_.chance(profile_.duplication)) fate |= kDuplicated;
  if (random_.chance(profile_.reordering)) fate |= kReordered;
  if (random_.chance(profile_.corruption)) fate |= kCorrupted;
  if (random_.chance(profile_.ecn_marking)) fate |= kMarked;
  if (blackholes_.contains(frame.destination_qpn.value)) fate = kBlackholed;
  return fate;
}

uint8_t Link::send(Frame frame) {
  Direction& direction = directions_[frame.source];
  frame.number = next_number_++;
  const uint8_t fate = draw_fate(frame);
  direction.busy_until = std::max(direction.busy_until, clock_.now()) + profile_.ns_per_frame;
  if (profile_.capacity != 0) {
    ++direction.queued;
    clock_.schedule(direction.busy_until, [this, source = frame.source] {
      Direction& freed = directions_[source];
      --freed.queued;
      if (std::exchange(freed.refused, false)) room_(source);
    });
  }
  if ((fate & (kLost | kBlackholed)) != 0) return fate;

  Instant arrival = direction.busy_until + profile_.delay_ns +
                    static_cast<int64_t>(random_.below(profile_.jitter_ns + 1));
  arrival = std::max(arrival, direction.last_arrival);
  if ((fate & kReordered) != 0) {
    arrival = arrival + static_cast<int64_t>(random_.below(profile_.reorder_ns + 1));
  } else {
    direction.last_arrival = arrival;
  }
  frame.congestion_experienced = (fate & kMarked) != 0;
  if ((fate & kCorrupted) != 0) {
    frame.corrupt = !profile_.deliver_corrupt;
    const uint64_t bit = random_.below(frame.bytes.size() * 8);
    frame.bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
  if ((fate & kDuplicated) != 0) {
    deliver_at(arrival + static_cast<int64_t>(random_.below(profile_.reorder_ns + 1)), frame);
  }
  deliver_at(arrival, std::move(frame));
  return fate;
}

void Link::deliver_at(Instant when, Frame frame) {
  ++in_flight_;
  // std::function wants a copyable callable, a frame is dear to copy.
  auto shared = std::make_shared<Frame>(std::move(frame));
  clock_.schedule(when, [this, shared = std::move(shared)] {
    --in_flight_;
    deliver_(std::move(*shared));
  });
}

void Link::restart(uint64_t loss_mask) {
  next_number_ = 0;
  profile_.loss_mask = loss_mask;
}

}  // namespace uroce::sim
