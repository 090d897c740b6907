// The thread that connects endpoints: serves this endpoint's control socket and calls on peers'.
//
// Each ordered pair of endpoints has one connection, made by the sender, which lives as long as its
// ring: end of file means that the other side is gone. The thread sleeps in poll(2) otherwise.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "datapath/fabric/control_message.hpp"
#include "datapath/fabric/link.hpp"
#include "datapath/fabric/run_directory.hpp"
#include "datapath/fabric/slot_table.hpp"

namespace uroce::datapath {

class ControlThread {
 public:
  // All three outlive the thread. Unlinks a stale socket of a former holder of the slot.
  static Result<std::unique_ptr<ControlThread>> start(const RunDirectory& directory,
                                                      SlotClaim& claim, LinkExchange& links);
  ~ControlThread();

  // Any thread: makes a connection to the holder of `slot` unless there is one. Does not wait.
  void request(uint8_t slot);
  // True when frames to `slot` reach its present holder; false when the attempt failed or after
  // timeout_ns.
  bool wait_connected(uint8_t slot, int64_t timeout_ns);

  // Closes every connection and removes the socket. Idempotent.
  void stop();
  // In a forked child, where the thread does not exist: closes descriptors, touches nothing else.
  void abandon_in_child();

 private:
  // A peer needs one connection in each direction, or two while it restarts.
  static constexpr size_t kMaxIncoming = 1024;
  static constexpr size_t kMaxConnections = kMaxIncoming + kSlotCount + 1;

  enum class Phase : uint32_t { kIdle, kWanted, kConnecting, kConnected, kFailed };

  // Toward one slot. Phase and generation are read by any thread, written under mutex_.
  struct Target {
    std::atomic<Phase> phase{Phase::kIdle};
    std::atomic<uint32_t> generation{0};  // of the holder that we are connected to
  };

  // Called by us.
  struct Outgoing {
    OwnedFd socket;
    uint8_t slot = 0;
    std::unique_ptr<TxLink> link;  // until the lane has it
    uint64_t link_id = 0;
  };

  // Calling us.
  struct Incoming {
    OwnedFd socket;
    bool greeted = false;
    uint64_t link_id = 0;
  };

  ControlThread(const RunDirectory& directory, SlotClaim& claim, LinkExchange& links)
      : directory_(directory), claim_(claim), links_(links) {}

  Status listen_for_peers();
  Status launch();
  void run();
  bool serve_once();
  void connect_wanted();
  Status connect_to(uint8_t slot);
  void close_outgoing(uint8_t slot);
  void accept_peers();
  // False: the connection is over and its entry goes.
  bool on_outgoing(Outgoing& peer);
  bool on_incoming(Incoming& peer);
  Status greet(Incoming& peer, ReceivedMessage received);
  void list_sockets();
  void settle(uint8_t slot, Phase phase, uint32_t generation);
  bool is_current(uint8_t slot) const;

  const RunDirectory& directory_;
  SlotClaim& claim_;
  LinkExchange& links_;
  OwnedFd listener_;
  OwnedFd waker_;  // eventfd
  pthread_t thread_{};
  bool running_ = false;
  std::atomic<bool> stopping_{false};
  std::array<Target, kSlotCount> targets_;
  std::mutex mutex_;
  std::condition_variable settled_;
  // The thread's own.
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  uint64_t last_link_id_ = 0;
  // The sockets of both lists, for a forked child: it may find the vectors in the middle of a
  // change. Ends with the first -1.
  std::array<std::atomic<int>, kMaxConnections> listed_sockets_;
};

}  // namespace uroce::datapath
