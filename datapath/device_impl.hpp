// An open device: its lane, its background thread, and the routes of its queue pairs.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "datapath/device.hpp"
#include "datapath/lane.hpp"
#include "datapath/progress_thread.hpp"

namespace uroce::datapath {

class DeviceImpl final : public OpenDevice {
 public:
  // Opens the wire, which may refuse. Forks are noticed by the ForkGuard, installed by the caller.
  static Result<std::unique_ptr<DeviceImpl>> create(const Config& config,
                                                    const DeviceDescription& description);
  // Stops the thread, sends what is queued, lingers and leaves. Not for static destructors.
  ~DeviceImpl() override;

  // The process is exiting with the device open: peers get what was sent. Threads run on; nothing
  // is freed.
  void flush_at_exit();
  // In a forked child: closes descriptors; the object is leaked.
  void abandon_in_child() { lane_.wire().abandon_in_child(); }

  const DeviceDescription& description() const override { return description_; }
  const transport::HcaLimits& limits() const override { return limits_; }
  bool alive() const override;
  void set_event_sink(transport::EventSink* sink) override { lane_.set_event_sink(sink); }

  Result<PdId> create_pd() override;
  Status destroy_pd(PdId pd) override;
  Result<uint32_t> register_region(const transport::RegionAttributes& attributes) override;
  Status deregister_region(Lkey key) override;
  Result<transport::CompletionQueue*> create_cq(uint32_t entries, void* owner) override;
  Status destroy_cq(transport::CompletionQueue& cq) override;
  Result<transport::QueuePair*> create_qp(const transport::QpInitAttributes& attributes) override;
  Status modify_qp(transport::QueuePair& qp, const transport::QpAttributes& attributes,
                   transport::QpAttributeMask mask) override;
  transport::QpAttributes query_qp(const transport::QueuePair& qp) override;
  Status destroy_qp(transport::QueuePair& qp) override;

  void ring(transport::QueuePair& qp) override { lane_.ring(qp); }
  bool progress() override;
  void expect_sleep() override;

  transport::HcaCounters counters() override;
  WireCounters wire_counters() override { return lane_.wire().counters(); }

 private:
  DeviceImpl(const Config& config, DeviceDescription description, std::unique_ptr<Wire> wire,
             const transport::HcaConfig& hca);

  Result<std::unique_ptr<Path>> resolve(const transport::AddressVector& address, Qpn destination);
  void write_stats();

  const Config config_;
  const DeviceDescription description_;
  const transport::HcaLimits limits_;
  const uint32_t epoch_;  // ForkGuard's
  Lane lane_;
  std::mutex paths_mutex_;
  // The route of each connected queue pair: it outlives the transport's use of it.
  std::unordered_map<const transport::QueuePair*, std::unique_ptr<Path>> paths_;
  std::unique_ptr<ProgressThread> thread_;
};

}  // namespace uroce::datapath
