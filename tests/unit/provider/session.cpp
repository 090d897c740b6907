// An open device for tests of the verbs.
#include "tests/unit/provider/session.hpp"

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <utility>

namespace uroce::provider {
namespace {

// Destroyed at exit, when every context is closed.
struct RunDirectory {
  RunDirectory() {
    path = std::filesystem::temp_directory_path() / "uroce-verbs.XXXXXX";
    if (mkdtemp(path.data()) == nullptr) abort();
    setenv("UROCE_RUN_DIR", path.c_str(), 1);
    for (const char* name : {"UROCE_FABRIC", "UROCE_DEVICES", "UROCE_NETDEV", "UROCE_MTU"}) {
      unsetenv(name);
    }
  }
  ~RunDirectory() { std::filesystem::remove_all(path); }
  std::string path;
};

}  // namespace

std::vector<ibv_device*> test_devices() {
  static const RunDirectory directory;
  auto devices = list_devices();
  REQUIRE(devices.ok());
  return devices.value();
}

Session::Session() {
  context.reset(open_device(test_devices().at(0)));
  REQUIRE(context != nullptr);
  pd.reset(ibv_alloc_pd(context.get()));
  REQUIRE(pd != nullptr);
}

Owned<ibv_cq> Session::make_cq(int entries, ibv_comp_channel* channel) const {
  Owned<ibv_cq> cq(ibv_create_cq(context.get(), entries, nullptr, channel, 0));
  REQUIRE(cq != nullptr);
  return cq;
}

Owned<ibv_comp_channel> Session::make_channel() const {
  Owned<ibv_comp_channel> channel(create_comp_channel(context.get()));
  REQUIRE(channel != nullptr);
  return channel;
}

Owned<ibv_qp> Session::make_qp(ibv_cq* cq) const {
  auto attributes = rc_attributes(cq);
  Owned<ibv_qp> qp(ibv_create_qp(pd.get(), &attributes));
  REQUIRE(qp != nullptr);
  return qp;
}

Owned<ibv_mr> Session::register_all(std::vector<std::byte>& memory, int access) const {
  Owned<ibv_mr> mr((ibv_reg_mr)(pd.get(), memory.data(), memory.size(), access));
  REQUIRE(mr != nullptr);
  return mr;
}

ibv_qp_init_attr rc_attributes(ibv_cq* cq) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.cap = {8, 8, 2, 2, 64};
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  return attributes;
}

int to_init(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  return ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

void connect(ibv_qp* qp, const ibv_qp* peer) {
  REQUIRE(to_init(qp) == 0);
  ibv_gid gid{};
  REQUIRE(ibv_query_gid(qp->context, 1, 1, &gid) == 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer->qp_num;
  attributes.rq_psn = attributes.sq_psn = 100;
  attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4;
  attributes.min_rnr_timer = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = gid;
  attributes.ah_attr.grh.sgid_index = 1;
  attributes.ah_attr.grh.hop_limit = 64;
  REQUIRE(ibv_modify_qp(qp, &attributes,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = attributes.rnr_retry = 7;
  REQUIRE(ibv_modify_qp(qp, &attributes,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

int to_error(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
}

std::vector<ibv_wc> poll_for(ibv_cq* cq, size_t count) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::seconds(5);
  std::vector<ibv_wc> out;
  while (out.size() < count && Clock::now() < until) {
    ibv_wc completion;
    if (ibv_poll_cq(cq, 1, &completion) == 1) out.push_back(completion);
  }
  return out;
}

}  // namespace uroce::provider
