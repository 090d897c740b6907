// A wire: lends buffers for outgoing Ethernet frames and bursts of incoming ones. Two
// implementations: the fabric (shared memory) and ethdev (a DPDK port).
//
// Calls are made under the lane's lock unless marked otherwise. Frames are whole Ethernet frames
// without FCS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datapath/path.hpp"
#include "transport/result.hpp"
#include "transport/types.hpp"

namespace uroce::datapath {

struct Frame {
  const std::byte* data = nullptr;
  uint32_t length = 0;  // bytes from the Ethernet header on, without FCS
};

struct WireCounters {
  uint64_t rx_frames = 0, rx_bytes = 0, tx_frames = 0, tx_bytes = 0;
  uint64_t tx_dropped = 0;  // accepted by commit, refused by the device
  uint64_t rx_dropped = 0;  // lost before we saw them: the device's ring was full
  uint64_t rx_corrupt = 0;  // broken ring records (fabric) or mbuf errors
  uint64_t kicks = 0;       // FUTEX_WAKEs sent
};

class Wire {
 public:
  virtual ~Wire() = default;

  // Top byte of this endpoint's QPNs: 1..255.
  virtual uint8_t slot() const = 0;

  // The largest path MTU that this wire carries.
  virtual Mtu max_mtu() const = 0;

  // Fills a path for `address` (header template and so on). `destination_qpn` may be 0 (an address
  // handle). Starts next-hop resolution (fabric: the connection to the peer's slot); see
  // Path::resolved. Refusals: ENETUNREACH, EHOSTUNREACH, EINVAL, with a sentence. Called without
  // the lane lock, from any thread.
  virtual Result<std::unique_ptr<Path>> open_path(const transport::AddressVector& address,
                                                  Qpn destination_qpn) = 0;
  // Called without the lane lock: waits up to `timeout_ns` until the path is resolved.
  virtual bool wait_resolved(const Path& path, int64_t timeout_ns) = 0;

  // Transmit. reserve lends room for one frame of up to `size` bytes toward the peer, or null when
  // full (a peer that is gone or unresolved swallows frames instead: null would park for ever). A
  // second reserve replaces an uncommitted one.
  virtual std::byte* reserve(const Path& path, Qpn destination_qpn, size_t size) = 0;
  // The reserved frame is complete and `size` bytes long.
  virtual void commit(size_t size) = 0;
  // End of a burst: everything committed becomes visible to the receivers.
  virtual void flush() = 0;

  // Receive: up to out.size() frames; they stay valid until release, which frees all of them.
  virtual size_t receive(std::span<Frame> out) = 0;
  virtual void release() = 0;

  // Wakes receivers that sleep with our frames unconsumed (fabric: FUTEX_WAKE ~3 us after flush).
  // True while some frame still needs watching. Ethdev wires: always false.
  virtual bool kick() = 0;

  // Says that this endpoint is being polled now by an application thread (or the background
  // thread), so that peers need not wake it. Cheap: one relaxed store.
  virtual void note_polled() = 0;

  // CPU on which a peer with traffic in flight toward us, or awaited by us, last ran; -1 unknown.
  // For yielding.
  virtual bool peer_shares_cpu(int cpu) const = 0;

  // Sleeping, for the background thread, without the lane lock: arm(), then look for work once
  // more, then sleep(); any thread may wake(). sleep returns when a frame came (fabric: doorbell),
  // on wake, or after timeout_ns. disarm after.
  virtual void arm() = 0;
  virtual void disarm() = 0;
  virtual void sleep(int64_t timeout_ns) = 0;
  virtual void wake() = 0;
  // True if sleep returns by itself when a frame comes; otherwise the caller must poll in growing
  // steps.
  virtual bool has_doorbell() const = 0;

  // Waits until peers consumed what was sent, at most `linger_ns`; then leaves the fabric or stops
  // the port. Without the lane lock; nothing but the destructor may follow.
  virtual void close_gracefully(
      int64_t linger_ns) = 0;  // waits until peers consumed what was sent; then leaves

  // In a forked child: closes this endpoint's descriptors without disturbing the parent's endpoint.
  // The object is never touched again, nor destroyed. Async-signal-safe.
  virtual void abandon_in_child() {}

  virtual WireCounters counters() const = 0;
};

}  // namespace uroce::datapath
