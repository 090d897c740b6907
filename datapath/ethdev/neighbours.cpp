// Follows the kernel's neighbour table for the next hops that paths use.
#include "datapath/ethdev/neighbours.hpp"

#include <fmt/format.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "datapath/ethdev/quiet_thread.hpp"
#include "datapath/frame.hpp"

namespace uroce::datapath {
namespace {

constexpr int kUnresolvedTickMs = 1000;
constexpr int kStaleTickMs = 5000;

void ring(const FileDescriptor& bell) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(bell.get(), &one, sizeof(one));
}

}  // namespace

EthdevPath::~EthdevPath() {
  if (neighbours) neighbours->detach(*this);
}

Result<std::shared_ptr<Neighbours>> Neighbours::open(const Interface& interface) {
  auto questions = RouteSocket::open();
  if (!questions) return questions.refusal();
  std::shared_ptr<Neighbours> self(new Neighbours(interface, std::move(*questions)));
  if (auto listening = self->listen(); !listening) return listening.refusal();
  // The thread is stopped and joined by stop() at the latest in the destructor.
  self->thread_ = start_quiet_thread("uroce-ctl", [raw = self.get()] { raw->run(); });
  return self;
}

Neighbours::Neighbours(const Interface& interface, RouteSocket questions)
    : interface_name_(interface.name),
      ifindex_(interface.index),
      questions_(std::move(questions)) {}

Neighbours::~Neighbours() {
  stop();
}

Status Neighbours::listen() {
  announcements_.reset(nl_socket_alloc());
  wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!announcements_ || !wake_) return Refusal{ENOMEM, "no memory for the neighbour listener"};
  int error = nl_connect(announcements_.get(), NETLINK_ROUTE);
  if (error == 0) error = nl_socket_add_membership(announcements_.get(), RTNLGRP_NEIGH);
  if (error == 0) error = nl_socket_set_nonblocking(announcements_.get());
  if (error != 0) {
    return Refusal{EIO, fmt::format("listening for neighbours: {}", nl_geterror(error))};
  }
  return Done{};
}

Result<Gid> Neighbours::next_hop(const Gid& destination, const Gid& source) {
  const std::lock_guard lock(mutex_);
  return questions_.next_hop(destination, source, ifindex_);
}

void Neighbours::attach(const std::shared_ptr<Neighbours>& self, EthdevPath& path,
                        const Gid& next_hop) {
  {
    const std::lock_guard lock(self->mutex_);
    path.next_hop = next_hop;
    path.neighbours = self;
    auto& entry = *self->hops_.try_emplace(next_hop).first;
    entry.second.paths.push_back(&path);
    path.used.store(true, std::memory_order_relaxed);
    self->refresh(entry);
    if (!entry.second.mac) self->ask_for(next_hop);
  }
  ring(self->wake_);
}

void Neighbours::detach(EthdevPath& path) {
  const std::lock_guard lock(mutex_);
  const auto entry = hops_.find(path.next_hop);
  if (entry == hops_.end()) return;
  std::erase(entry->second.paths, &path);
  if (entry->second.paths.empty()) hops_.erase(entry);
}

bool Neighbours::wait_resolved(const EthdevPath& path, int64_t timeout_ns) {
  const auto is_resolved = [&path] { return path.resolved.load(std::memory_order_acquire); };
  if (is_resolved()) return true;
  std::unique_lock lock(mutex_);
  ++waiters_;
  const bool in_time = resolved_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), is_resolved);
  --waiters_;
  return in_time;
}

void Neighbours::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  ring(wake_);
  thread_.join();
}

void Neighbours::abandon_in_child() {
  close(nl_socket_get_fd(announcements_.get()));
  questions_.abandon_in_child();
  wake_.reset();
}

void Neighbours::run() {
  std::array<pollfd, 2> sources = {
      {{nl_socket_get_fd(announcements_.get()), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  while (!stopping_.load()) {
    const int ready = poll(sources.data(), sources.size(), patience_ms());
    if (ready == 0) on_tick();
    if (ready <= 0) continue;
    uint64_t rings = 0;
    [[maybe_unused]] const ssize_t bytes = read(wake_.get(), &rings, sizeof(rings));
    if (sources[0].revents != 0) read_announcements();
  }
}

int Neighbours::patience_ms() {
  const std::lock_guard lock(mutex_);
  int patience = -1;
  for (const auto& [address, hop] : hops_) {
    if (!hop.mac) return kUnresolvedTickMs;
    if (hop.stale) patience = kStaleTickMs;
  }
  return patience;
}

void Neighbours::on_tick() {
  const std::lock_guard lock(mutex_);
  for (const auto& [address, hop] : hops_) {
    if (hop.mac && !hop.stale) continue;
    const bool used = take_use(hop);
    if (used || (!hop.mac && waiters_ > 0)) ask_for(address);
  }
}

void Neighbours::read_announcements() {
  alignas(nlmsghdr) std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t size =
        recv(nl_socket_get_fd(announcements_.get()), buffer.data(), buffer.size(), 0);
    const std::lock_guard lock(mutex_);
    if (size < 0 && errno == ENOBUFS) {  // some were lost: ask for all that matters
      for (auto& entry : hops_) refresh(entry);
      continue;
    }
    if (size <= 0) return;
    int rest = static_cast<int>(size);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer.data()); nlmsg_ok(message, rest);
         message = nlmsg_next(message, &rest)) {
      const auto neighbour = decode_neighbour(message);
      if (!neighbour || neighbour->ifindex != ifindex_) continue;
      const auto entry = hops_.find(neighbour->address);
      if (entry != hops_.end()) learn(*entry, *neighbour);
    }
  }
}

void Neighbours::learn(Hops::value_type& entry, const Neighbour& neighbour) {
  auto& [address, hop] = entry;
  // An entry that the kernel dropped or starts anew keeps its last MAC until it is known to fail.
  if (neighbour.mac || neighbour.failed) hop.mac = neighbour.mac;
  hop.stale = hop.mac && (neighbour.stale || !neighbour.mac);
  for (EthdevPath* path : hop.paths) {
    path->destination_mac.store(hop.mac ? packed(*hop.mac) : 0, std::memory_order_relaxed);
    path->resolved.store(hop.mac.has_value(), std::memory_order_release);
  }
  if (hop.mac) resolved_.notify_all();
  if (hop.stale && take_use(hop)) ask_for(address);
}

void Neighbours::refresh(Hops::value_type& entry) {
  const auto neighbour = questions_.neighbour(entry.first, ifindex_);
  learn(entry, neighbour ? *neighbour : Neighbour{});
}

void Neighbours::ask_for(const Gid& address) {
  if (questions_.use_neighbour(address, ifindex_) != 0) poke(address);
}

bool Neighbours::take_use(const Hop& hop) {
  bool used = false;
  for (const EthdevPath* path : hop.paths) {
    used |= path->used.exchange(false, std::memory_order_relaxed);
  }
  return used;
}

// Without CAP_NET_ADMIN: an empty datagram makes the kernel resolve. It goes to RoCE's own port,
// whose owner drops it, since any other would draw an ICMP answer.
void Neighbours::poke(const Gid& address) {
  const bool ipv4 = address.is_ipv4_mapped();
  const FileDescriptor socket(
      ::socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return;
  sockaddr_storage to{};
  socklen_t length = sizeof(sockaddr_in);
  if (ipv4) {
    auto& in = reinterpret_cast<sockaddr_in&>(to);
    in.sin_family = AF_INET;
    in.sin_port = htons(kRoceUdpPort);
    std::memcpy(&in.sin_addr, &address.bytes[12], 4);
  } else {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(to);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(kRoceUdpPort);
    in6.sin6_scope_id = static_cast<uint32_t>(ifindex_);
    std::memcpy(&in6.sin6_addr, address.bytes.data(), 16);
    length = sizeof(sockaddr_in6);
  }
  setsockopt(socket.get(), SOL_SOCKET, SO_BINDTODEVICE, interface_name_.c_str(),
             static_cast<socklen_t>(interface_name_.size()));
  sendto(socket.get(), nullptr, 0, 0, reinterpret_cast<const sockaddr*>(&to), length);
}

}  // namespace uroce::datapath
