// Frames between processes through rings in shared memory.
#include "datapath/fabric/fabric_wire.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "datapath/fabric/fabric_addresses.hpp"
#include "datapath/frame.hpp"

namespace uroce::datapath {

namespace {

// A sleeping receiver is woken when a frame has waited this long while nobody polled.
constexpr int64_t kWakeAfterNs = 3'000;
// After this many looks the receiver is woken whatever its clock says.
constexpr uint32_t kMaxLooks = 16;
// The same for a peer that last polled on the CPU on which we run.
constexpr int64_t kWakePreemptedAfterNs = 50'000;
// Frames to a slot without a connection ask for one this often.
constexpr int64_t kReconnectNs = 1'000'000;
constexpr uint8_t kDefaultHopLimit = 64;
constexpr Qpn kMulticastQpn{0xffffff};

// The slot that a frame goes to, by its destination QPN alone; 0: nobody's.
uint8_t slot_of(Qpn destination_qpn) {
  return destination_qpn == kMulticastQpn ? uint8_t{0} : destination_qpn.slot();
}

}  // namespace

Result<std::unique_ptr<Wire>> open_fabric_wire(const Config& config,
                                               const DeviceDescription& self) {
  auto directory = RunDirectory::open(config.fabric_directory());
  if (!directory) return directory.refusal();
  auto claim = SlotClaim::claim(*directory, self.name);
  if (!claim) return claim.refusal();
  auto loopback = RingMemory::create(RingLayout::kDefaultCapacity);
  if (!loopback) return loopback.refusal();
  loopback->close_fd();
  auto wire = std::make_unique<FabricWire>(config, std::move(*directory), std::move(*claim),
                                           std::move(*loopback));
  if (Status status = wire->start(); !status) return status.refusal();
  return std::unique_ptr<Wire>(std::move(wire));
}

Result<std::vector<SlotHolder>> list_fabric_holders(const Config& config) {
  auto directory = RunDirectory::open_existing(config.fabric_directory());
  if (!directory) {
    if (directory.refusal().error == ENOENT) return std::vector<SlotHolder>{};
    return directory.refusal();
  }
  return list_held_slots(*directory);
}

FabricWire::FabricWire(const Config& config, RunDirectory directory,
                       std::unique_ptr<SlotClaim> claim, RingMemory loopback)
    : config_(config),
      directory_(std::move(directory)),
      claim_(std::move(claim)),
      own_doorbell_(claim_->own_entry()),
      wake_after_ticks_(ticks_of(kWakeAfterNs)),
      wake_preempted_after_ticks_(ticks_of(kWakePreemptedAfterNs)),
      reconnect_ticks_(ticks_of(kReconnectNs)),
      scratch_(std::make_unique<std::byte[]>(kScratchBytes)) {
  // Both ends map the same memory; the ring to ourselves is there from the start.
  std::byte* const memory = loopback.data();
  const size_t capacity = loopback.capacity();
  tx_links_.push_back(
      std::make_unique<TxLink>(0, slot(), std::move(loopback), claim_->own_entry()));
  tx_by_slot_[slot()] = tx_links_.back().get();
  rx_links_.push_back(std::make_unique<RxLink>(0, slot(), RingConsumer(memory, capacity)));
}

FabricWire::~FabricWire() = default;

Status FabricWire::start() {
  auto control = ControlThread::start(directory_, *claim_, exchange_);
  if (!control) return control.refusal();
  control_ = std::move(*control);
  return Done{};
}

Result<std::unique_ptr<Path>> FabricWire::open_path(const transport::AddressVector& address,
                                                    Qpn destination_qpn) {
  const bool ipv4 = address.destination_gid.is_ipv4_mapped();
  if (address.source_gid.is_zero() || address.source_gid.is_ipv4_mapped() != ipv4) {
    return Refusal{EINVAL,
                   "the source GID is empty or of another address family than the destination: "
                   "choose an sgid_index of the destination's kind (0: link-local v6, 1: v4)"};
  }
  if (!is_fabric_address(config_, address.destination_gid)) {
    return Refusal{ENETUNREACH,
                   fmt::format("the destination GID is no address of fabric {}, whose networks are "
                               "{}: do both sides use the same UROCE_FABRIC?",
                               config_.fabric, describe_fabric_networks(config_))};
  }
  auto path = std::make_unique<Path>();
  path->address = address;
  if (path->address.hop_limit == 0) path->address.hop_limit = kDefaultHopLimit;
  fill_header_template(*path, mac_of(address.source_gid), mac_of(address.destination_gid));
  const uint8_t peer = slot_of(destination_qpn);
  path->fabric_slot = peer;
  path->loopback = peer == slot();
  if (peer == 0 || path->loopback) {
    path->resolved = true;
  } else {
    control_->request(peer);
    path->resolved = control_->wait_connected(peer, 0);
  }
  return path;
}

// The path is good whether or not the peer answers: frames to nobody are swallowed, and the
// transport's timeout tells.
bool FabricWire::wait_resolved(const Path& path, int64_t timeout_ns) {
  const bool connected = path.resolved || control_->wait_connected(path.fabric_slot, timeout_ns);
  path.resolved = true;
  return connected;
}

std::byte* FabricWire::reserve(const Path&, Qpn destination_qpn, size_t size) {
  if (exchange_.pending() || retire_pending_) [[unlikely]]
    settle_links();
  const uint8_t peer = slot_of(destination_qpn);
  TxLink* const link = tx_by_slot_[peer];
  if (link == nullptr) [[unlikely]]
    return swallow(peer);
  std::byte* const room = link->producer.reserve(size);
  reserved_ = link;
  if (room == nullptr && link->producer.broken()) [[unlikely]] {
    ++counters_.rx_corrupt;
    give_up(*link);
    return swallow(0);
  }
  return room;
}

// Nobody is there (yet): the frame goes nowhere, so that its sender times out and does not wait for
// room.
std::byte* FabricWire::swallow(uint8_t slot) {
  reserved_ = nullptr;
  if (slot != 0) {
    const uint64_t now = read_ticks();
    if (static_cast<int64_t>(now - next_request_tick_[slot]) >= 0) {
      next_request_tick_[slot] = now + reconnect_ticks_;
      control_->request(slot);
    }
  }
  return scratch_.get();
}

void FabricWire::commit(size_t size) {
  ++counters_.tx_frames;
  counters_.tx_bytes += size;
  if (reserved_ == nullptr) {
    ++counters_.tx_dropped;
    return;
  }
  reserved_->producer.commit(size);
  if (!reserved_->dirty) {
    reserved_->dirty = true;
    dirty_.push_back(reserved_);
  }
}

void FabricWire::flush() {
  if (dirty_.empty()) return;
  for (TxLink* const link : dirty_) link->producer.publish();
  // Against arm(): either we see the word armed, or the sleeper sees the frame.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (TxLink* const link : dirty_) {
    link->dirty = false;
    if (!link->watched && link->doorbell.armed()) {
      link->looks = 0;
      look_after(*link, read_ticks());
      if (link->watched) watched_.push_back(link);
    }
  }
  dirty_.clear();
}

// Wakes the peer if it sleeps and none of its threads has polled for a while; else says when to
// look again.
void FabricWire::look_after(TxLink& link, uint64_t now) {
  link.watched = false;
  if (!link.doorbell.armed() || link.producer.drained()) return;
  // A peer that polled on this very CPU is kept from polling by us, not asleep: it has a while
  // longer.
  const bool preempted_by_us = link.doorbell.cpu() == sched_getcpu();
  const uint64_t patience = preempted_by_us ? wake_preempted_after_ticks_ : wake_after_ticks_;
  const int64_t since = link.doorbell.ticks_since_polled(now);
  if (since > static_cast<int64_t>(patience) || ++link.looks > kMaxLooks) {
    if (link.doorbell.ring()) ++counters_.kicks;
    return;
  }
  link.watched = true;
  link.look_at_tick = now + wake_after_ticks_;
}

bool FabricWire::kick() {
  if (exchange_.pending() || retire_pending_) [[unlikely]]
    settle_links();
  if (watched_.empty()) return false;
  const uint64_t now = read_ticks();
  std::erase_if(watched_, [&](TxLink* link) {
    if (static_cast<int64_t>(now - link->look_at_tick) >= 0) look_after(*link, now);
    return !link->watched;
  });
  return !watched_.empty();
}

size_t FabricWire::receive(std::span<Frame> out) {
  if (exchange_.pending() || retire_pending_) [[unlikely]]
    settle_links();
  size_t received = 0;
  const size_t count = rx_links_.size();
  for (size_t i = 0; i < count && received < out.size(); ++i) {
    size_t at = first_rx_ + i;
    if (at >= count) at -= count;
    RxLink& link = *rx_links_[at];
    const size_t more = link.consumer.receive(out.subspan(received));
    if (more != 0) {
      borrowed_.push_back(&link);
      count_received(out.subspan(received, more));
      received += more;
    } else if (link.closing) {
      retire_pending_ = true;
    }
    if (link.consumer.broken() && !link.closing) [[unlikely]] {
      ++counters_.rx_corrupt;
      link.closing = true;
    }
  }
  if (++first_rx_ >= count) first_rx_ = 0;
  return received;
}

void FabricWire::count_received(std::span<const Frame> frames) {
  counters_.rx_frames += frames.size();
  for (const Frame& frame : frames) counters_.rx_bytes += frame.length;
}

void FabricWire::release() {
  for (RxLink* const link : borrowed_) link->consumer.release();
  borrowed_.clear();
}

// New links are taken at once, even in the middle of a burst: a frame to a peer that has just been
// connected must not be swallowed. Links that are gone stay mapped until nothing uses a ring.
void FabricWire::settle_links() {
  if (exchange_.pending()) adopt_changes();
  if (retire_pending_ && dirty_.empty() && borrowed_.empty()) retire_links();
}

void FabricWire::adopt_changes() {
  LinkExchange::Changes changes = exchange_.take();
  for (auto& link : changes.new_tx) {
    if (TxLink* const former = tx_by_slot_[link->slot]) give_up(*former);
    tx_by_slot_[link->slot] = link.get();
    tx_links_.push_back(std::move(link));
  }
  for (auto& link : changes.new_rx) rx_links_.push_back(std::move(link));
  for (const uint64_t id : changes.gone) {
    const auto tx = std::ranges::find(tx_links_, id, &TxLink::id);
    if (tx != tx_links_.end()) give_up(**tx);
    const auto rx = std::ranges::find(rx_links_, id, &RxLink::id);
    if (rx != rx_links_.end()) (*rx)->closing = true;
  }
  retire_pending_ = true;
}

// Sends nothing more through a link.
void FabricWire::give_up(TxLink& link) {
  if (tx_by_slot_[link.slot] == &link) tx_by_slot_[link.slot] = nullptr;
  link.gone = true;
  retire_pending_ = true;
}

void FabricWire::retire_links() {
  if (reserved_ != nullptr && reserved_->gone) reserved_ = nullptr;
  std::erase_if(watched_, [](const TxLink* link) { return link->gone; });
  std::erase_if(tx_links_, [](const std::unique_ptr<TxLink>& link) { return link->gone; });
  std::erase_if(rx_links_, [](const std::unique_ptr<RxLink>& link) {
    return link->closing && link->consumer.is_empty();
  });
  retire_pending_ = false;
  first_rx_ = 0;
}

bool FabricWire::peer_shares_cpu(int cpu) const {
  return std::ranges::any_of(rx_links_, [&](const std::unique_ptr<RxLink>& link) {
    return link->slot != slot() && claim_->entry(link->slot).cpu == cpu;
  });
}

bool FabricWire::is_drained(bool wake_sleepers) {
  bool drained = true;
  for (const auto& link : tx_links_) {
    if (link->slot == slot() || link->producer.drained()) continue;
    drained = false;
    if (wake_sleepers && link->doorbell.ring()) ++counters_.kicks;
  }
  return drained;
}

void FabricWire::close_gracefully(int64_t linger_ns) {
  if (!control_) return;
  flush();
  release();
  const uint64_t start = read_ticks();
  const auto linger_ticks = static_cast<int64_t>(ticks_of(linger_ns));
  constexpr timespec kPause{0, 50'000};
  for (;;) {
    settle_links();
    if (is_drained(true) || static_cast<int64_t>(read_ticks() - start) >= linger_ticks) break;
    nanosleep(&kPause, nullptr);
  }
  control_.reset();
  claim_.reset();
}

void FabricWire::abandon_in_child() {
  // The control thread's object is left behind: its condition variable may have waiters that do not
  // exist here, for which a destructor would wait.
  if (ControlThread* const control = control_.release()) control->abandon_in_child();
  if (claim_) claim_->abandon_in_child();
  directory_.abandon();
}

}  // namespace uroce::datapath
