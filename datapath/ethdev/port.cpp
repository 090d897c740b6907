// Drives a net_af_packet port.
#include "datapath/ethdev/port.hpp"

#include <fmt/format.h>
#include <rte_bus_vdev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <cerrno>

#include "datapath/ethdev/eal.hpp"
#include "datapath/ethdev/frame_filter.hpp"
#include "datapath/ethdev/ring_geometry.hpp"

// Of the object that holds the drivers: naming it links them, and their constructors register them.
extern "C" const char net_af_packet_pmd_info[];

namespace uroce::datapath {
namespace {

Refusal refuse(const Interface& interface, const char* step, int error) {
  const std::string words = last_dpdk_error();
  return {EIO, fmt::format("{}: {} failed: {}{}{}", interface.name, step, rte_strerror(error),
                           words.empty() ? "" : "; DPDK says: ", words)};
}

}  // namespace

Result<std::unique_ptr<Port>> Port::open(const Interface& interface) {
  std::unique_ptr<Port> port(new Port(interface, fmt::format("net_af_packet{}", interface.index)));
  if (auto started = port->start(interface); !started) return started.refusal();
  return port;
}

Port::Port(const Interface& interface, std::string device_name)
    : device_name_(std::move(device_name)), mac_(interface.mac) {}

Status Port::start(const Interface& interface) {
  if (net_af_packet_pmd_info[0] == 0) return Refusal{EIO, "built without the packet driver"};
  const RingGeometry ring = ring_geometry(interface.mtu);
  buffer_bytes_ = ring.buffer_bytes;
  // The pool is last-in first-out, so that the same few buffers stay in the cache; every buffer can
  // be in use at once.
  constexpr unsigned kBuffers = 2 * (kMaxBacklog + kMaxToSelf + kMaxBurst);
  pool_ = rte_pktmbuf_pool_create_by_ops(
      fmt::format("uroce-{}", interface.index).c_str(), kBuffers, 0, 0,
      static_cast<uint16_t>(buffer_bytes_ + RTE_PKTMBUF_HEADROOM), SOCKET_ID_ANY, "stack");
  if (pool_ == nullptr) return refuse(interface, "making the buffer pool", rte_errno);

  const std::string arguments =
      fmt::format("iface={},qdisc_bypass=1,blocksz={},framesz={},framecnt={}", interface.name,
                  ring.block_bytes, ring.frame_bytes, ring.frames);
  const auto earlier = open_packet_sockets();
  int error = rte_vdev_init(device_name_.c_str(), arguments.c_str());
  if (error != 0) return refuse(interface, "attaching the DPDK port", -error);
  attached_ = true;
  socket_ = PacketSocket::find(interface, earlier);
  if (socket_) socket_->keep_to_roce();
  error = rte_eth_dev_get_port_by_name(device_name_.c_str(), &port_id_);
  if (error != 0) return refuse(interface, "finding the DPDK port", -error);
  // The MTU stays 0: this driver reports 1518 at most and refuses more, yet carries long frames.
  const rte_eth_conf plain{};
  error = rte_eth_dev_configure(port_id_, 1, 1, &plain);
  if (error == 0) {
    error = rte_eth_rx_queue_setup(port_id_, 0, 0, SOCKET_ID_ANY, nullptr, pool_);
  }
  if (error == 0) error = rte_eth_tx_queue_setup(port_id_, 0, 0, SOCKET_ID_ANY, nullptr);
  if (error == 0) error = rte_eth_dev_start(port_id_);
  if (error != 0) return refuse(interface, "starting the DPDK port", -error);
  return Done{};
}

Port::~Port() {
  release();
  if (lent_ != nullptr) rte_pktmbuf_free(lent_);
  rte_pktmbuf_free_bulk(backlog_.data(), static_cast<unsigned>(backlog_count_));
  for (; to_self_tail_ != to_self_head_; ++to_self_tail_) {
    rte_pktmbuf_free(to_self_[to_self_tail_ % kMaxToSelf]);
  }
  if (attached_) {
    rte_eth_dev_stop(port_id_);
    rte_eth_dev_close(port_id_);
    rte_vdev_uninit(device_name_.c_str());
  }
  rte_mempool_free(pool_);
}

std::byte* Port::lend(size_t size) {
  if (size > buffer_bytes_) return nullptr;
  if (lent_ == nullptr) {
    if (backlog_count_ == kMaxBacklog) flush();
    if (backlog_count_ == kMaxBacklog || to_self_head_ - to_self_tail_ == kMaxToSelf) {
      return nullptr;
    }
    lent_ = rte_pktmbuf_alloc(pool_);
    if (lent_ == nullptr) return nullptr;
  }
  return rte_pktmbuf_mtod(lent_, std::byte*);
}

void Port::send(size_t size) {
  lent_->data_len = static_cast<uint16_t>(size);
  lent_->pkt_len = static_cast<uint32_t>(size);
  backlog_[backlog_count_++] = lent_;
  lent_ = nullptr;
  ++counters_.tx_frames;
  counters_.tx_bytes += size;
}

void Port::send_to_self(size_t size) {
  lent_->data_len = static_cast<uint16_t>(size);
  lent_->pkt_len = static_cast<uint32_t>(size);
  to_self_[to_self_head_++ % kMaxToSelf] = lent_;
  lent_ = nullptr;
  ++counters_.tx_frames;
  counters_.tx_bytes += size;
}

void Port::swallow() {
  rte_pktmbuf_free(lent_);
  lent_ = nullptr;
  ++counters_.tx_dropped;
}

void Port::flush() {
  if (backlog_count_ == 0) return;
  const size_t taken =
      rte_eth_tx_burst(port_id_, 0, backlog_.data(), static_cast<uint16_t>(backlog_count_));
  std::copy(backlog_.begin() + static_cast<ptrdiff_t>(taken),
            backlog_.begin() + static_cast<ptrdiff_t>(backlog_count_), backlog_.begin());
  backlog_count_ -= taken;
  fruitless_flushes_ = taken == 0 ? fruitless_flushes_ + 1 : 0;
  if (fruitless_flushes_ < kMaxFruitlessFlushes) return;
  fruitless_flushes_ = 0;
  counters_.tx_dropped += backlog_count_;
  rte_pktmbuf_free_bulk(backlog_.data(), static_cast<unsigned>(backlog_count_));
  backlog_count_ = 0;
}

void Port::hand_out(rte_mbuf* buffer, std::span<Frame> out) {
  Frame& frame = out[in_hand_count_];
  frame.data = rte_pktmbuf_mtod(buffer, const std::byte*);
  frame.length = buffer->data_len;
  in_hand_[in_hand_count_++] = buffer;
  ++counters_.rx_frames;
  counters_.rx_bytes += frame.length;
}

size_t Port::receive(std::span<Frame> out) {
  release();
  out = out.first(std::min(out.size(), kMaxBurst));
  // Half of a burst at most, so that talking to ourselves does not starve the interface.
  const size_t own = std::min(to_self_head_ - to_self_tail_, (out.size() + 1) / 2);
  for (size_t i = 0; i < own; ++i) hand_out(to_self_[to_self_tail_++ % kMaxToSelf], out);

  std::array<rte_mbuf*, kMaxBurst> burst;
  const uint16_t count = rte_eth_rx_burst(port_id_, 0, burst.data(),
                                          static_cast<uint16_t>(out.size() - in_hand_count_));
  for (size_t i = 0; i < count; ++i) {
    const Frame frame{rte_pktmbuf_mtod(burst[i], const std::byte*), burst[i]->data_len};
    if (is_roce_for(mac_, frame)) {
      hand_out(burst[i], out);
    } else {
      rte_pktmbuf_free(burst[i]);
    }
  }
  return in_hand_count_;
}

void Port::release() {
  if (in_hand_count_ == 0) return;
  rte_pktmbuf_free_bulk(in_hand_.data(), static_cast<unsigned>(in_hand_count_));
  in_hand_count_ = 0;
}

WireCounters Port::counters() {
  if (socket_) counters_.rx_dropped += socket_->take_drops();
  WireCounters out = counters_;
  rte_eth_stats device{};
  if (rte_eth_stats_get(port_id_, &device) == 0) out.tx_dropped += device.oerrors;
  return out;
}

}  // namespace uroce::datapath
