// The fabric as a wire: rings to and from every process of one user that one talks to.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "datapath/config.hpp"
#include "datapath/device.hpp"
#include "datapath/fabric/control_thread.hpp"
#include "datapath/fabric/doorbell.hpp"
#include "datapath/fabric/link.hpp"
#include "datapath/fabric/run_directory.hpp"
#include "datapath/fabric/slot_table.hpp"
#include "datapath/wire.hpp"

namespace uroce::datapath {

// Joins the fabric as `self`: takes a slot. Refusals: EPERM (the directory is not ours alone),
// EPROTO (another version is running there), ENOSPC (255 slots held), errors of the file system.
Result<std::unique_ptr<Wire>> open_fabric_wire(const Config& config, const DeviceDescription& self);

// The processes that hold slots of the fabric; none if nobody ever used it.
Result<std::vector<SlotHolder>> list_fabric_holders(const Config& config);

class FabricWire final : public Wire {
 public:
  FabricWire(const Config& config, RunDirectory directory, std::unique_ptr<SlotClaim> claim,
             RingMemory loopback);
  ~FabricWire() override;
  // Starts serving peers; nothing else before.
  Status start();

  uint8_t slot() const override { return claim_->slot(); }
  Mtu max_mtu() const override { return config_.mtu; }
  Result<std::unique_ptr<Path>> open_path(const transport::AddressVector& address,
                                          Qpn destination_qpn) override;
  bool wait_resolved(const Path& path, int64_t timeout_ns) override;
  std::byte* reserve(const Path& path, Qpn destination_qpn, size_t size) override;
  void commit(size_t size) override;
  void flush() override;
  size_t receive(std::span<Frame> out) override;
  void release() override;
  bool kick() override;
  void note_polled() override { own_doorbell_.note_polled(); }
  bool peer_shares_cpu(int cpu) const override;
  void arm() override { own_doorbell_.arm(); }
  void disarm() override { own_doorbell_.disarm(); }
  void sleep(int64_t timeout_ns) override { own_doorbell_.sleep(timeout_ns); }
  void wake() override { own_doorbell_.ring(); }
  bool has_doorbell() const override { return true; }
  void close_gracefully(int64_t linger_ns) override;
  void abandon_in_child() override;
  WireCounters counters() const override { return counters_; }

 private:
  static constexpr size_t kScratchBytes = RingLayout::kMaxFrame;

  void settle_links();
  void adopt_changes();
  void give_up(TxLink& link);
  void retire_links();
  std::byte* swallow(uint8_t slot);
  void look_after(TxLink& link, uint64_t now);
  void count_received(std::span<const Frame> frames);
  bool is_drained(bool wake_sleepers);

  const Config config_;
  RunDirectory directory_;
  std::unique_ptr<SlotClaim> claim_;
  Doorbell own_doorbell_;
  LinkExchange exchange_;
  std::unique_ptr<ControlThread> control_;
  const uint64_t wake_after_ticks_;
  const uint64_t wake_preempted_after_ticks_;
  const uint64_t reconnect_ticks_;

  // The lane's.
  std::vector<std::unique_ptr<TxLink>> tx_links_;
  std::array<TxLink*, kSlotCount> tx_by_slot_{};
  std::array<uint64_t, kSlotCount> next_request_tick_{};
  std::vector<std::unique_ptr<RxLink>> rx_links_;
  size_t first_rx_ = 0;            // where the next receive begins, for fairness
  std::vector<RxLink*> borrowed_;  // with frames that were received and not released
  bool retire_pending_ = false;    // some link is gone, or closing and perhaps empty
  std::vector<TxLink*> dirty_;
  std::vector<TxLink*> watched_;
  TxLink* reserved_ = nullptr;  // null: the scratch buffer
  std::unique_ptr<std::byte[]> scratch_;
  WireCounters counters_;
};

}  // namespace uroce::datapath
