// What the e2e programs share: verbs objects that release themselves, a connected pair of processes
// with a side channel, and checks that end the program with one sentence.
#pragma once

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace uroce::e2e {

[[noreturn]] void fail(std::string_view what);
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> what, Args&&... args) {
  if (!condition) fail(fmt::format(what, std::forward<Args>(args)...));
}

// Destroys a verbs object and requires that the verb agrees.
template <typename T, int (*destroy)(T*)>
struct Destroyer {
  void operator()(T* object) const {
    const int error = destroy(object);
    require(error == 0, "destroying an object gave {}", error);
  }
};
using Pd = std::unique_ptr<ibv_pd, Destroyer<ibv_pd, ibv_dealloc_pd>>;
using Cq = std::unique_ptr<ibv_cq, Destroyer<ibv_cq, ibv_destroy_cq>>;
using Qp = std::unique_ptr<ibv_qp, Destroyer<ibv_qp, ibv_destroy_qp>>;
using Mr = std::unique_ptr<ibv_mr, Destroyer<ibv_mr, ibv_dereg_mr>>;
using Context = std::unique_ptr<ibv_context, Destroyer<ibv_context, ibv_close_device>>;
using Channel =
    std::unique_ptr<ibv_comp_channel, Destroyer<ibv_comp_channel, ibv_destroy_comp_channel>>;

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

Context open_device(const std::string& name);
Pd make_pd(const Context& context);
Cq make_cq(const Context& context, int entries, ibv_comp_channel* channel = nullptr,
           void* cq_context = nullptr);
Mr make_mr(const Pd& pd, std::span<std::byte> memory, int access = kAllAccess);

// What a process was told on its command line.
struct Options {
  std::string device = "uroce0";
  int gid_index = 1;
  bool first = true;  // the requester of most cases
};

// A byte stream to the other process.
class SideChannel {
 public:
  explicit SideChannel(int fd) : fd_(fd) {}
  SideChannel(const SideChannel&) = delete;
  ~SideChannel();

  void send_bytes(const void* data, size_t length);
  void receive_bytes(void* data, size_t length);
  template <typename T>
  T exchange(const T& mine) {
    T theirs;
    send_bytes(&mine, sizeof mine);
    receive_bytes(&theirs, sizeof theirs);
    return theirs;
  }
  // Both sides are here.
  void barrier() { (void)exchange<uint8_t>(0); }

 private:
  int fd_;
};

struct PairOptions {
  uint32_t max_wr = 256;
  uint32_t max_sge = 4;
  uint32_t max_inline = 0;
  ibv_mtu path_mtu = IBV_MTU_1024;
  uint8_t timeout = 14;  // 4.096 us << timeout
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 0.01 ms
  int qp_access = kAllAccess;
  bool signal_all = false;
  int cq_entries = 1024;
};

// Where the peer is, and the memory that it exposes.
struct Peer {
  uint32_t qpn = 0;
  uint32_t psn = 0;
  ibv_gid gid{};
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t rkey = 0;
};

// One side of a connected RC queue pair, with memory that the peer may use.
struct Side {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  Cq send_cq;
  Cq recv_cq;
  std::vector<std::byte> memory;
  Mr mr;
  Qp qp;
  Peer peer;
  PairOptions options;

  std::byte* at(size_t offset) { return memory.data() + offset; }
};

// Creates this side's objects, exchanges addresses and goes to RTS; returns when the peer is there.
std::unique_ptr<Side> connect_side(const Options& options, SideChannel& channel,
                                   const Context& context, const Pd& pd, size_t memory_bytes,
                                   const PairOptions& pair = {});
void to_init(ibv_qp* qp, int access);
void to_rtr_rts(ibv_qp* qp, const Options& options, const Peer& peer, uint32_t own_psn,
                const PairOptions& pair);

// Work requests of one entry, ready to be changed.
struct Send {
  ibv_sge sge{};
  ibv_send_wr wr{};
};
// `local` of `length` bytes to or from `remote_offset` of the peer's memory; signalled.
void fill_send(Send& send, Side& side, ibv_wr_opcode opcode, size_t local_offset, uint32_t length,
               size_t remote_offset, uint64_t wr_id = 0);
void post(Side& side, ibv_send_wr& wr);
void post_receive(Side& side, size_t offset, uint32_t length, uint64_t wr_id = 0);

// The next completion, within ten seconds.
ibv_wc wait_completion(ibv_cq* cq);
// The same, and it must be a success.
ibv_wc wait_success(ibv_cq* cq, std::string_view what);
// Nothing may be in the CQ.
void require_empty(ibv_cq* cq, std::string_view what);

// A byte pattern that differs at every offset and for every seed.
void fill_pattern(std::span<std::byte> memory, uint64_t seed);
// Offset of the first byte that differs from the pattern, or memory.size().
size_t first_difference(std::span<const std::byte> memory, uint64_t seed);

// Time since an arbitrary origin, in milliseconds.
double now_ms();

// The cases; each runs in both processes.
using CaseFunction = void (*)(const Options& options, SideChannel& channel);
struct Case {
  std::string_view name;
  CaseFunction run;
};
std::span<const Case> data_cases();
std::span<const Case> order_cases();
std::span<const Case> error_cases();
std::span<const Case> limit_cases();
std::span<const Case> event_cases();
std::span<const Case> process_cases();

}  // namespace uroce::e2e
