// Verbs objects, connection and completion waiting for the e2e programs.
#include "tests/e2e/verbs_kit.hpp"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdlib>

namespace uroce::e2e {

void fail(std::string_view what) {
  const std::string line = fmt::format("FAILED [{}]: {}\n", getpid(), what);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

Context open_device(const std::string& name) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  require(list != nullptr, "no device list: {}", strerror(errno));
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  require(context != nullptr, "cannot open {}: {}", name, strerror(errno));
  return Context(context);
}

Pd make_pd(const Context& context) {
  ibv_pd* const pd = ibv_alloc_pd(context.get());
  require(pd != nullptr, "alloc_pd: {}", strerror(errno));
  return Pd(pd);
}

Cq make_cq(const Context& context, int entries, ibv_comp_channel* channel, void* cq_context) {
  ibv_cq* const cq = ibv_create_cq(context.get(), entries, cq_context, channel, 0);
  require(cq != nullptr, "create_cq of {}: {}", entries, strerror(errno));
  return Cq(cq);
}

Mr make_mr(const Pd& pd, std::span<std::byte> memory, int access) {
  ibv_mr* const mr =
      ibv_reg_mr(pd.get(), memory.data(), memory.size(), static_cast<unsigned>(access));
  require(mr != nullptr, "reg_mr of {} bytes: {}", memory.size(), strerror(errno));
  return Mr(mr);
}

SideChannel::~SideChannel() {
  close(fd_);
}

void SideChannel::send_bytes(const void* data, size_t length) {
  const char* bytes = static_cast<const char*>(data);
  while (length > 0) {
    const ssize_t sent = send(fd_, bytes, length, MSG_NOSIGNAL);
    require(sent > 0, "the other process has gone ({})", strerror(errno));
    bytes += sent;
    length -= static_cast<size_t>(sent);
  }
}

void SideChannel::receive_bytes(void* data, size_t length) {
  char* bytes = static_cast<char*>(data);
  while (length > 0) {
    const ssize_t got = recv(fd_, bytes, length, 0);
    require(got > 0, "the other process has gone");
    bytes += got;
    length -= static_cast<size_t>(got);
  }
}

void to_init(ibv_qp* qp, int access) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = static_cast<unsigned>(access);
  const int error = ibv_modify_qp(
      qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  require(error == 0, "modify_qp to INIT: {}", strerror(error));
}

void to_rtr_rts(ibv_qp* qp, const Options& options, const Peer& peer, uint32_t own_psn,
                const PairOptions& pair) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = pair.path_mtu;
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = 16;
  attr.min_rnr_timer = pair.min_rnr_timer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(options.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  int error = ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  require(error == 0, "modify_qp to RTR: {}", strerror(error));
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = pair.timeout;
  attr.retry_cnt = pair.retry_count;
  attr.rnr_retry = pair.rnr_retry;
  attr.sq_psn = own_psn;
  attr.max_rd_atomic = 16;
  error = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  require(error == 0, "modify_qp to RTS: {}", strerror(error));
}

std::unique_ptr<Side> connect_side(const Options& options, SideChannel& channel,
                                   const Context& context, const Pd& pd, size_t memory_bytes,
                                   const PairOptions& pair) {
  auto side = std::make_unique<Side>();
  side->options = pair;
  side->context = context.get();
  side->pd = pd.get();
  side->send_cq = make_cq(context, pair.cq_entries);
  side->recv_cq = make_cq(context, pair.cq_entries);
  side->memory.resize(memory_bytes);
  side->mr = make_mr(pd, side->memory);
  ibv_qp_init_attr init{};
  init.send_cq = side->send_cq.get();
  init.recv_cq = side->recv_cq.get();
  init.cap = {pair.max_wr, pair.max_wr, pair.max_sge, pair.max_sge, pair.max_inline};
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = pair.signal_all ? 1 : 0;
  side->qp.reset(ibv_create_qp(pd.get(), &init));
  require(side->qp != nullptr, "create_qp: {}", strerror(errno));

  Peer self;
  self.qpn = side->qp->qp_num;
  self.psn = static_cast<uint32_t>(getpid() * 7919) & 0xffffff;
  require(ibv_query_gid(context.get(), 1, options.gid_index, &self.gid) == 0, "query_gid {}",
          options.gid_index);
  self.address = reinterpret_cast<uint64_t>(side->memory.data());
  self.length = memory_bytes;
  self.rkey = side->mr->rkey;
  side->peer = channel.exchange(self);
  to_init(side->qp.get(), pair.qp_access);
  to_rtr_rts(side->qp.get(), options, side->peer, self.psn, pair);
  channel.barrier();
  return side;
}

void fill_send(Send& send, Side& side, ibv_wr_opcode opcode, size_t local_offset, uint32_t length,
               size_t remote_offset, uint64_t wr_id) {
  send = {};
  send.sge = {reinterpret_cast<uint64_t>(side.at(local_offset)), length, side.mr->lkey};
  send.wr.wr_id = wr_id;
  send.wr.sg_list = &send.sge;
  send.wr.num_sge = 1;
  send.wr.opcode = opcode;
  send.wr.send_flags = IBV_SEND_SIGNALED;
  send.wr.wr.rdma.remote_addr = side.peer.address + remote_offset;
  send.wr.wr.rdma.rkey = side.peer.rkey;
}

void post(Side& side, ibv_send_wr& wr) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(side.qp.get(), &wr, &bad);
  require(error == 0, "post_send of opcode {}: {}", static_cast<int>(wr.opcode), strerror(error));
}

void post_receive(Side& side, size_t offset, uint32_t length, uint64_t wr_id) {
  ibv_sge sge = {reinterpret_cast<uint64_t>(side.at(offset)), length, side.mr->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(side.qp.get(), &wr, &bad);
  require(error == 0, "post_recv: {}", strerror(error));
}

ibv_wc wait_completion(ibv_cq* cq) {
  ibv_wc wc{};
  const double deadline = now_ms() + 10'000;
  for (;;) {
    const int count = ibv_poll_cq(cq, 1, &wc);
    require(count >= 0, "poll_cq gave {}", count);
    if (count == 1) return wc;
    require(now_ms() < deadline, "no completion within ten seconds");
  }
}

ibv_wc wait_success(ibv_cq* cq, std::string_view what) {
  const ibv_wc wc = wait_completion(cq);
  require(wc.status == IBV_WC_SUCCESS, "{}: {} (vendor error {})", what,
          ibv_wc_status_str(wc.status), wc.vendor_err);
  return wc;
}

void require_empty(ibv_cq* cq, std::string_view what) {
  ibv_wc wc{};
  const int count = ibv_poll_cq(cq, 1, &wc);
  require(count == 0, "{}: unexpected completion {} of wr_id {}", what,
          ibv_wc_status_str(wc.status), wc.wr_id);
}

// SplitMix64's mixing function: neighbouring words share nothing.
static uint64_t pattern_word(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0x9e3779b97f4a7c15 + index + 1;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void fill_pattern(std::span<std::byte> memory, uint64_t seed) {
  for (size_t i = 0; i < memory.size(); i += 8) {
    const uint64_t word = pattern_word(seed, i / 8);
    memcpy(memory.data() + i, &word, std::min<size_t>(8, memory.size() - i));
  }
}

size_t first_difference(std::span<const std::byte> memory, uint64_t seed) {
  for (size_t i = 0; i < memory.size(); i += 8) {
    const uint64_t word = pattern_word(seed, i / 8);
    const size_t length = std::min<size_t>(8, memory.size() - i);
    uint64_t found = 0;
    memcpy(&found, memory.data() + i, length);
    const uint64_t mask = length == 8 ? ~0ull : (1ull << (8 * length)) - 1;
    const uint64_t difference = (word & mask) ^ found;
    if (difference != 0) return i + static_cast<size_t>(std::countr_zero(difference)) / 8;
  }
  return memory.size();
}

double now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

}  // namespace uroce::e2e
