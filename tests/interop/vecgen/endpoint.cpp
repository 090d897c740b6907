// Opening, connecting and waiting with plain libibverbs.
#include "tests/interop/vecgen/endpoint.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace uroce::tests {
namespace {

constexpr uint8_t kPort = 1;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

ibv_mtu mtu_of(int bytes) {
  switch (bytes) {
    case 256:
      return IBV_MTU_256;
    case 512:
      return IBV_MTU_512;
    case 1024:
      return IBV_MTU_1024;
    case 2048:
      return IBV_MTU_2048;
    case 4096:
      return IBV_MTU_4096;
    default:
      throw std::runtime_error("path MTU must be 256, 512, 1024, 2048 or 4096");
  }
}

ibv_context* open_device(const std::string& name) {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = nullptr;
  for (ibv_device** device = list; device != nullptr && *device != nullptr; ++device) {
    if (name.empty() || name == ibv_get_device_name(*device)) {
      context = ibv_open_device(*device);
      break;
    }
  }
  if (list != nullptr) {
    ibv_free_device_list(list);
  }
  return context;
}

}  // namespace

Endpoint::Endpoint(const Settings& own, SideChannel& side) : settings_(own), channel_(side) {
  constexpr int kCompletions = 256;
  context_ = open_device(own.device);
  if (context_ == nullptr) {
    fail(own.device.empty() ? "no RDMA device" : "no RDMA device " + own.device);
  }
  pd_ = ibv_alloc_pd(context_);
  cq_ = ibv_create_cq(context_, kCompletions, nullptr, nullptr, 0);
  memory_ = static_cast<unsigned char*>(std::aligned_alloc(4096, kBufferSize));
  if (pd_ == nullptr || cq_ == nullptr || memory_ == nullptr) {
    fail("protection domain or completion queue");
  }
  std::memset(memory_, 0, kBufferSize);
  region_ = ibv_reg_mr(pd_, memory_, kBufferSize,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_ATOMIC);
  if (region_ == nullptr) {
    fail("reg_mr");
  }
}

Endpoint::~Endpoint() {
  if (region_ != nullptr) {
    ibv_dereg_mr(region_);
  }
  if (cq_ != nullptr) {
    ibv_destroy_cq(cq_);
  }
  if (pd_ != nullptr) {
    ibv_dealloc_pd(pd_);
  }
  if (context_ != nullptr) {
    ibv_close_device(context_);
  }
  std::free(memory_);
}

void Endpoint::modify(ibv_qp* qp, ibv_qp_attr attributes, int mask, const char* what) {
  errno = ibv_modify_qp(qp, &attributes, mask);
  if (errno != 0) {
    fail(std::string("modify_qp to ") + what);
  }
}

ibv_qp* Endpoint::connect(uint8_t rnr_retry) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  init.cap.max_send_wr = init.cap.max_recv_wr = 64;
  init.cap.max_send_sge = init.cap.max_recv_sge = 2;
  ibv_qp* const qp = ibv_create_qp(pd_, &init);
  if (qp == nullptr) {
    fail("create_qp");
  }
  PeerInfo ours{};
  ours.qpn = qp->qp_num;
  ours.psn = settings_.client ? 0xfffffa : 0x100;
  ours.rkey = region_->rkey;
  ours.address = reinterpret_cast<uintptr_t>(memory_);
  if (ibv_query_gid(context_, kPort, settings_.gid_index, &ours.gid) != 0) {
    fail("query_gid " + std::to_string(settings_.gid_index));
  }
  peer_ = channel_.exchange(ours);

  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = kPort;
  to.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC;
  modify(qp, to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");

  to = {};
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = mtu_of(settings_.path_mtu);
  to.dest_qp_num = peer_.qpn;
  to.rq_psn = peer_.psn;
  to.max_dest_rd_atomic = 4;
  to.min_rnr_timer = 12;
  to.ah_attr.is_global = 1;
  to.ah_attr.port_num = kPort;
  to.ah_attr.grh.dgid = peer_.gid;
  to.ah_attr.grh.sgid_index = static_cast<uint8_t>(settings_.gid_index);
  to.ah_attr.grh.hop_limit = 64;
  modify(qp, to,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
         "RTR");

  to = {};
  to.qp_state = IBV_QPS_RTS;
  to.sq_psn = ours.psn;
  to.timeout = 17;
  to.retry_cnt = 7;
  to.rnr_retry = rnr_retry;
  to.max_rd_atomic = 4;
  modify(qp, to,
         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC,
         "RTS");
  return qp;
}

void Endpoint::post_receives(ibv_qp* qp, size_t count, uint32_t length) {
  for (size_t slot = 0; slot < count; ++slot) {
    unsigned char* const place = memory(kReceiveAt + slot * kSlotSize);
    std::memset(place, 0xee, kSlotSize);
    ibv_sge sge{reinterpret_cast<uintptr_t>(place), length, region_->lkey};
    ibv_recv_wr request{};
    request.wr_id = slot;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    errno = ibv_post_recv(qp, &request, &bad);
    if (errno != 0) {
      fail("post_recv");
    }
  }
}

std::optional<ibv_wc> Endpoint::wait_completion(int milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  do {
    ibv_wc completion{};
    const int found = ibv_poll_cq(cq_, 1, &completion);
    if (found < 0) {
      fail("poll_cq");
    }
    if (found == 1) {
      return completion;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  } while (std::chrono::steady_clock::now() < end);
  return std::nullopt;
}

}  // namespace uroce::tests
