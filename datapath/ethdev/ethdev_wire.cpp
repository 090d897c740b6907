// The Wire over a DPDK port: lock, guard, port and neighbours of one interface put together.
#include <fmt/format.h>
#include <linux/if_ether.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "datapath/ethdev/eal.hpp"
#include "datapath/ethdev/ethdev.hpp"
#include "datapath/ethdev/file_descriptor.hpp"
#include "datapath/ethdev/interface.hpp"
#include "datapath/ethdev/neighbours.hpp"
#include "datapath/ethdev/port.hpp"
#include "datapath/ethdev/port_lock.hpp"
#include "datapath/ethdev/udp_guard.hpp"
#include "datapath/frame.hpp"

namespace uroce::datapath {
namespace {

// What an open wire consists of; members are torn down in reverse order, the lock last.
struct Parts {
  FileDescriptor lock;
  FileDescriptor bell;  // eventfd that ends sleep()
  UdpGuard guard;
  std::shared_ptr<Neighbours> neighbours;
  std::unique_ptr<Port> port;
};

std::vector<Gid> gids_of(const DeviceDescription& self) {
  std::vector<Gid> gids;
  for (const GidEntry& entry : self.gids) {
    if (!entry.gid.is_zero()) gids.push_back(entry.gid);
  }
  return gids;
}

// Another slot in each life, so that frames for a predecessor's queue pairs miss.
uint8_t random_slot() {
  uint8_t random = 0;
  [[maybe_unused]] const ssize_t got = getrandom(&random, 1, GRND_NONBLOCK);
  return static_cast<uint8_t>(random % 255 + 1);
}

class EthdevWire final : public Wire {
 public:
  EthdevWire(Parts parts, const Interface& interface, const DeviceDescription& self)
      : parts_(std::move(parts)),
        mac_(interface.mac),
        max_mtu_(self.max_mtu),
        own_gids_(gids_of(self)),
        slot_(random_slot()) {}
  ~EthdevWire() override {
    if (parts_.neighbours) parts_.neighbours->stop();
  }

  uint8_t slot() const override { return slot_; }
  Mtu max_mtu() const override { return max_mtu_; }

  Result<std::unique_ptr<Path>> open_path(const transport::AddressVector& address,
                                          Qpn destination_qpn) override;
  bool wait_resolved(const Path& path, int64_t timeout_ns) override {
    return path.loopback ||
           parts_.neighbours->wait_resolved(static_cast<const EthdevPath&>(path), timeout_ns);
  }

  std::byte* reserve(const Path& path, Qpn destination_qpn, size_t size) override;
  void commit(size_t size) override;
  void flush() override { parts_.port->flush(); }
  size_t receive(std::span<Frame> out) override { return parts_.port->receive(out); }
  void release() override { parts_.port->release(); }

  bool kick() override { return false; }
  void note_polled() override {}
  bool peer_shares_cpu(int) const override { return false; }
  void arm() override {}
  void disarm() override {}
  void sleep(int64_t timeout_ns) override;
  void wake() override;
  bool has_doorbell() const override { return parts_.port->socket().has_value(); }
  void close_gracefully(int64_t linger_ns) override;
  void abandon_in_child() override;
  WireCounters counters() const override { return parts_.port->counters(); }

 private:
  enum class Fate : uint8_t { kSend, kToSelf, kSwallow };

  Parts parts_;
  const MacAddress mac_;
  const Mtu max_mtu_;
  const std::vector<Gid> own_gids_;
  const uint8_t slot_;
  // Of the reserved frame.
  std::byte* frame_ = nullptr;
  Fate fate_ = Fate::kSwallow;
  uint64_t destination_mac_ = 0;
};

Result<std::unique_ptr<Path>> EthdevWire::open_path(const transport::AddressVector& address, Qpn) {
  const Gid& source = address.source_gid;
  const Gid& destination = address.destination_gid;
  if (source.is_ipv4_mapped() != destination.is_ipv4_mapped()) {
    return Refusal{EINVAL, fmt::format("source {} and destination {} are of different IP versions: "
                                       "choose another source GID index",
                                       to_text(source), to_text(destination))};
  }
  auto path = std::make_unique<EthdevPath>();
  path->address = address;
  path->loopback = std::find(own_gids_.begin(), own_gids_.end(), destination) != own_gids_.end();
  if (path->loopback) {
    fill_header_template(*path, mac_, mac_);
    path->destination_mac.store(packed(mac_), std::memory_order_relaxed);
    path->resolved.store(true, std::memory_order_release);
    return std::unique_ptr<Path>(std::move(path));
  }
  auto next_hop = parts_.neighbours->next_hop(destination, source);
  if (!next_hop) return next_hop.refusal();
  fill_header_template(*path, mac_, {});  // commit writes the destination MAC of the moment
  Neighbours::attach(parts_.neighbours, *path, *next_hop);
  return std::unique_ptr<Path>(std::move(path));
}

std::byte* EthdevWire::reserve(const Path& path, Qpn, size_t size) {
  const auto& to = static_cast<const EthdevPath&>(path);
  destination_mac_ = to.destination_mac.load(std::memory_order_relaxed);
  if (to.loopback) {
    fate_ = Fate::kToSelf;
  } else {
    fate_ = destination_mac_ == 0 ? Fate::kSwallow : Fate::kSend;
    if (!to.used.load(std::memory_order_relaxed)) to.used.store(true, std::memory_order_relaxed);
  }
  frame_ = parts_.port->lend(size);
  return frame_;
}

void EthdevWire::commit(size_t size) {
  switch (fate_) {
    case Fate::kSend:
      for (size_t i = 0; i < mac_.size(); ++i) {
        frame_[i] = static_cast<std::byte>(destination_mac_ >> (8 * i));
      }
      parts_.port->send(size);
      break;
    case Fate::kToSelf:
      parts_.port->send_to_self(size);
      break;
    case Fate::kSwallow:
      parts_.port->swallow();
      break;
  }
}

void EthdevWire::sleep(int64_t timeout_ns) {
  const std::optional<PacketSocket>& frames = parts_.port->socket();
  // A negative descriptor is passed over.
  std::array<pollfd, 2> sources = {
      {{parts_.bell.get(), POLLIN, 0}, {frames ? frames->fd() : -1, POLLIN, 0}}};
  const timespec timeout = {timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  if (ppoll(sources.data(), sources.size(), &timeout, nullptr) <= 0) return;
  if ((sources[1].revents & POLLERR) != 0) frames->clear_error();
  if (sources[0].revents == 0) return;
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t bytes = read(parts_.bell.get(), &rings, sizeof(rings));
}

void EthdevWire::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(parts_.bell.get(), &one, sizeof(one));
}

void EthdevWire::close_gracefully(int64_t linger_ns) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(linger_ns);
  parts_.port->flush();
  while (parts_.port->backlog() != 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    parts_.port->flush();
  }
  parts_.neighbours->stop();
  parts_.port.reset();
  parts_.guard.reset();
  parts_.lock.reset();
}

void EthdevWire::abandon_in_child() {
  parts_.lock.reset();
  parts_.bell.reset();
  parts_.guard.reset();
  parts_.neighbours->abandon_in_child();
  if (parts_.port->socket()) close(parts_.port->socket()->fd());
}

Status check_may_open(const Interface& interface) {
  if (!interface.up) {
    return Refusal{ENETDOWN, fmt::format("{0} is down: ip link set {0} up", interface.name)};
  }
  const FileDescriptor probe(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (probe) return Done{};
  if (errno != EPERM && errno != EACCES) {
    return Refusal{errno,
                   fmt::format("{}: no packet socket: {}", interface.name, std::strerror(errno))};
  }
  return Refusal{EPERM, fmt::format("using {} directly needs CAP_NET_RAW: run as root, or use the "
                                    "fabric, which needs no rights",
                                    interface.name)};
}

}  // namespace

Result<std::unique_ptr<Wire>> open_ethdev_wire(const Config& config,
                                               const DeviceDescription& self) {
  auto interface = query_interface(config.netdev);
  if (!interface) return interface.refusal();
  if (auto may = check_may_open(*interface); !may) return may.refusal();
  auto lock = lock_port(interface->name, interface->index);
  if (!lock) return lock.refusal();
  if (auto eal = start_eal(); !eal) return eal.refusal();
  FileDescriptor bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) return Refusal{errno, "no eventfd for the wire's doorbell"};
  auto neighbours = Neighbours::open(*interface);
  if (!neighbours) return neighbours.refusal();
  auto port = Port::open(*interface);
  if (!port) return port.refusal();
  Parts parts{std::move(*lock), std::move(bell), UdpGuard(interface->name), std::move(*neighbours),
              std::move(*port)};
  return std::unique_ptr<Wire>(new EthdevWire(std::move(parts), *interface, self));
}

}  // namespace uroce::datapath
