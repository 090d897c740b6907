// The facade that the provider sees: the devices that a configuration offers, and an open one.
//
// One OpenDevice exists per process and device, shared by all its contexts. Control verbs take the
// lane lock and may block briefly; data verbs only try it. Every method is thread-safe unless it
// says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/config.hpp"
#include "datapath/wire.hpp"
#include "transport/hca.hpp"

namespace uroce::datapath {

struct GidEntry {
  Gid gid;             // zero: an empty index
  std::string netdev;  // interface that owns it ("lo" on the fabric); empty: none
};

// What can be said of a device without opening it.
struct DeviceDescription {
  std::string name;          // "uroce0"
  uint64_t node_guid = 0;    // host order; unique per host, user, fabric and device
  uint64_t system_guid = 0;  // system image GUID
  Mtu max_mtu = Mtu::k4096;
  Mtu active_mtu = Mtu::k4096;
  WireKind wire = WireKind::kFabric;
  std::string netdev;  // the Linux interface; "lo" on the fabric
  bool link_up = true;
  std::vector<GidEntry>
      gids;  // its size is gid_tbl_len; index 0 link-local v6, 1 v4-mapped, then others
};

inline constexpr size_t kGidTableLength = 16;

// The devices of a configuration, in order. Refusals: ENODEV (no such interface), EINVAL.
Result<std::vector<DeviceDescription>> describe_devices(const Config& config);

class OpenDevice {
 public:
  // Opens, or shares the already open, device of that name. Refusals: EBUSY (port or slots taken:
  // names the holder), EPERM, EPROTO (another version on the fabric), EIO (in a forked child in
  // ethdev mode)…
  static Result<std::shared_ptr<OpenDevice>> open(const Config& config, std::string_view name);
  virtual ~OpenDevice() = default;

  virtual const DeviceDescription& description() const = 0;
  virtual const transport::HcaLimits& limits() const = 0;
  // False in a forked child: every verb on an inherited object then returns EIO.
  virtual bool alive() const = 0;

  // Async events go to `sink` for objects whose owner it was registered with; completion events
  // likewise. Called under the lane lock, so sinks must be quick and must not call back.
  virtual void set_event_sink(transport::EventSink* sink) = 0;

  // Control verbs: Hca's, under the lane lock. Lock order: context -> lane -> CQ -> channel; the
  // engine asks for CQ locks through EventSink::lock_consumer.
  virtual Result<PdId> create_pd() = 0;
  virtual Status destroy_pd(PdId pd) = 0;
  virtual Result<uint32_t> register_region(const transport::RegionAttributes& attributes) = 0;
  virtual Status deregister_region(Lkey key) = 0;
  virtual Result<transport::CompletionQueue*> create_cq(uint32_t entries, void* owner) = 0;
  virtual Status destroy_cq(transport::CompletionQueue& cq) = 0;
  virtual Result<transport::QueuePair*> create_qp(
      const transport::QpInitAttributes& attributes) = 0;
  // Resolves the address vector first when the mask carries one (may wait for the neighbour,
  // without the lane lock).
  virtual Status modify_qp(transport::QueuePair& qp, const transport::QpAttributes& attributes,
                           transport::QpAttributeMask mask) = 0;
  virtual transport::QpAttributes query_qp(const transport::QueuePair& qp) = 0;
  virtual Status destroy_qp(transport::QueuePair& qp) = 0;

  // Data verbs. ring: work was posted to `qp`; transmits inline if the lane is free, else its
  // holder will.
  virtual void ring(transport::QueuePair& qp) = 0;
  // An empty poll_cq calls this: polls the wire if the lane is free; after many empty polls in a
  // row yields the CPU to a peer that shares it. Returns true if the engine ran.
  virtual bool progress() = 0;
  // The application is about to block (req_notify): the background thread takes over.
  virtual void expect_sleep() = 0;

  virtual transport::HcaCounters counters() = 0;
  virtual WireCounters wire_counters() = 0;
};

}  // namespace uroce::datapath
