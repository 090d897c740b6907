// One side of a vecgen run: device, memory, completion queue, and the queue pair of the moment.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/interop/vecgen/side_channel.hpp"

namespace uroce::tests {

struct Settings {
  bool client = false;
  std::string server;  // IPv4 address, for a client
  std::string device;  // empty: the first
  int gid_index = 1;
  int path_mtu = 1024;
  uint16_t port = 7471;
  std::string parts = "rc,err";
};

// What each side tells the other about a queue pair. The bytes are those of the x86-64 ABI.
struct PeerInfo {
  uint32_t qpn;
  uint32_t psn;
  uint32_t rkey;
  uint32_t unused;
  uint64_t address;
  ibv_gid gid;
};

// The registered buffer, in bytes: what the client works on or the server offers, then receives.
inline constexpr size_t kRemoteAt = 4096;   // where WRITE and READ go in the server
inline constexpr size_t kAtomicAt = 32768;  // where ATOMICs go in the server
inline constexpr size_t kReceiveAt = 65536;
inline constexpr size_t kSlotSize = 16384;
inline constexpr size_t kSlots = 24;
inline constexpr size_t kBufferSize = kReceiveAt + kSlotSize * kSlots;

class Endpoint {
 public:
  Endpoint(const Settings& own, SideChannel& side);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // A connected RC queue pair; client and server call it together. The client's PSNs start at
  // 0xfffffa, so that they wrap; the server's at 0x100.
  ibv_qp* connect(uint8_t rnr_retry);
  void post_receives(ibv_qp* qp, size_t count, uint32_t length);

  // The next completion, or nothing within so many milliseconds.
  std::optional<ibv_wc> wait_completion(int milliseconds);

  bool client() const { return settings_.client; }
  const PeerInfo& peer() const { return peer_; }
  uint32_t lkey() const { return region_->lkey; }
  unsigned char* memory(size_t at) { return memory_ + at; }

 private:
  void modify(ibv_qp* qp, ibv_qp_attr attributes, int mask, const char* what);

  const Settings& settings_;
  SideChannel& channel_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  unsigned char* memory_ = nullptr;
  PeerInfo peer_{};
};

}  // namespace uroce::tests
