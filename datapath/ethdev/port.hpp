// A DPDK port and the buffers of its frames: bursts in and out, and a way from ourselves to us.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/ethdev/interface.hpp"
#include "datapath/ethdev/packet_socket.hpp"
#include "datapath/wire.hpp"
#include "transport/result.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace uroce::datapath {

// Used by one thread at a time (the lane's lock).
class Port {
 public:
  // Starts a port on `interface`, which the kernel keeps. EAL runs. Refusals carry DPDK's words.
  static Result<std::unique_ptr<Port>> open(const Interface& interface);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // Lends room for one frame of up to `size` bytes; null when the backlog is full. A second lend
  // returns the same buffer.
  std::byte* lend(size_t size);
  // The lent frame is complete: to the interface, to ourselves, or nowhere (counted as dropped).
  void send(size_t size);
  void send_to_self(size_t size);
  void swallow();
  // Hands the backlog to the device. What it does not take waits for the next flush; after
  // kMaxFruitlessFlushes in a row that took nothing, the backlog is dropped and counted.
  void flush();

  // Frames for us, our own first; they stay valid until release or the next receive. Everything
  // else that the interface carries is passed over.
  size_t receive(std::span<Frame> out);
  void release();

  // Frames that wait to be taken by the device.
  size_t backlog() const { return backlog_count_; }
  WireCounters counters();
  // For waiting without the lane's lock; nothing with drivers that have no such descriptor.
  const std::optional<PacketSocket>& socket() const { return socket_; }

 private:
  static constexpr size_t kMaxBacklog = 256;
  static constexpr size_t kMaxToSelf = 512;  // power of two
  static constexpr size_t kMaxBurst = 64;
  static constexpr size_t kMaxFruitlessFlushes = 1024;

  Port(const Interface& interface, std::string device_name);
  Status start(const Interface& interface);
  void hand_out(rte_mbuf* buffer, std::span<Frame> out);

  const std::string device_name_;
  const MacAddress mac_;
  rte_mempool* pool_ = nullptr;
  uint16_t port_id_ = 0;
  bool attached_ = false;
  uint32_t buffer_bytes_ = 0;
  std::optional<PacketSocket> socket_;

  rte_mbuf* lent_ = nullptr;
  std::array<rte_mbuf*, kMaxBacklog> backlog_{};
  size_t backlog_count_ = 0;
  size_t fruitless_flushes_ = 0;
  std::array<rte_mbuf*, kMaxToSelf> to_self_{};
  size_t to_self_head_ = 0;  // free-running; head - tail frames wait
  size_t to_self_tail_ = 0;
  std::array<rte_mbuf*, kMaxBurst> in_hand_{};  // handed out until release
  size_t in_hand_count_ = 0;
  WireCounters counters_;
};

}  // namespace uroce::datapath
