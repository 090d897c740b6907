// Next hops and their MACs, kept as the kernel's neighbour table has them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "datapath/ethdev/file_descriptor.hpp"
#include "datapath/ethdev/interface.hpp"
#include "datapath/ethdev/route_socket.hpp"
#include "datapath/path.hpp"
#include "transport/result.hpp"

namespace uroce::datapath {

class Neighbours;

// A path of this wire. The lane reads it without a lock; Neighbours writes the atomics for as long
// as it is attached.
class EthdevPath final : public Path {
 public:
  ~EthdevPath() override;

  // Where frames go now: a MAC in the low 48 bits, its first byte lowest; 0 while unresolved.
  std::atomic<uint64_t> destination_mac{0};
  // Set by the lane when it sends, cleared when its need has been seen to.
  mutable std::atomic<bool> used{false};
  Gid next_hop;
  std::shared_ptr<Neighbours> neighbours;  // set while attached
};

constexpr uint64_t packed(const MacAddress& mac) {
  uint64_t value = 0;
  for (size_t i = 0; i < mac.size(); ++i) value |= static_cast<uint64_t>(mac[i]) << (8 * i);
  return value;
}

// Thread-safe. A thread named uroce-ctl follows the kernel's announcements; it sleeps while nothing
// changes. It behaves as the kernel would if the packets were its own: unresolved hops that are
// wanted are asked for every second, stale ones that are used are confirmed.
class Neighbours {
 public:
  static Result<std::shared_ptr<Neighbours>> open(const Interface& interface);
  ~Neighbours();

  // See RouteSocket::next_hop.
  Result<Gid> next_hop(const Gid& destination, const Gid& source);

  // Keeps the path's MAC until it is detached (its destructor does), and starts resolution.
  static void attach(const std::shared_ptr<Neighbours>& self, EthdevPath& path,
                     const Gid& next_hop);
  void detach(EthdevPath& path);
  bool wait_resolved(const EthdevPath& path, int64_t timeout_ns);

  // Ends the thread. Attached paths keep what they know.
  void stop();
  // In a forked child: closes the descriptors, and nothing else.
  void abandon_in_child();

 private:
  struct Hop {
    std::optional<MacAddress> mac;
    bool stale = false;
    std::vector<EthdevPath*> paths;
  };
  using Hops = std::map<Gid, Hop>;

  Neighbours(const Interface& interface, RouteSocket questions);
  Status listen();
  void run();
  void read_announcements();
  // Milliseconds until the thread must look again; -1: only when woken.
  int patience_ms();
  void on_tick();
  // Below: under mutex_.
  void learn(Hops::value_type& entry, const Neighbour& neighbour);
  void refresh(Hops::value_type& entry);
  void ask_for(const Gid& address);
  static bool take_use(const Hop& hop);
  void poke(const Gid& address);

  const std::string interface_name_;
  const int ifindex_;
  std::unique_ptr<nl_sock, FreeNetlinkSocket> announcements_;  // only the thread reads it
  FileDescriptor wake_;                                        // eventfd
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  std::condition_variable resolved_;
  RouteSocket questions_;
  Hops hops_;
  int waiters_ = 0;
};

}  // namespace uroce::datapath
