// The verbs as an application calls them: what they grant and what they refuse.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "datapath/log.hpp"
#include "tests/unit/provider/session.hpp"

namespace uroce::provider {
namespace {

// errno after a verb that returned null.
template <typename T>
int refusal_of(T* object) {
  return object == nullptr ? errno : 0;
}

TEST_CASE("devices have one address, a GUID each, and a directory") {
  const auto devices = test_devices();
  REQUIRE(devices.size() == 2);
  CHECK(test_devices() == devices);
  CHECK(std::string(ibv_get_device_name(devices[0])) == "uroce0");
  CHECK(ibv_get_device_guid(devices[0]) != 0);
  CHECK(ibv_get_device_guid(devices[0]) != ibv_get_device_guid(devices[1]));
  CHECK(access((devices[0]->ibdev_path + std::string("/ports/1/gids/0")).c_str(), R_OK) == 0);
}

TEST_CASE("the port is active Ethernet, and other ports are refused") {
  const Session session;
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(session.context.get(), 1, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);
  CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
  CHECK(port.gid_tbl_len == static_cast<int>(datapath::kGidTableLength));
  CHECK(port.max_msg_sz == 1u << 31);
  CHECK(ibv_query_port(session.context.get(), 0, &port) == EINVAL);
  CHECK(ibv_query_port(session.context.get(), 2, &port) == EINVAL);
}

TEST_CASE("the GID table is answered from the device directory") {
  const Session session;
  ibv_gid_entry entry{};
  REQUIRE(ibv_query_gid_ex(session.context.get(), 1, 1, &entry, 0) == 0);
  CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2);
  CHECK(entry.gid.raw[11] == 0xff);
  CHECK(entry.gid.raw[12] == 127);
  CHECK(ibv_query_gid_ex(session.context.get(), 1, datapath::kGidTableLength - 1, &entry, 0) ==
        ENODATA);
  CHECK(ibv_query_gid_ex(session.context.get(), 1, datapath::kGidTableLength, &entry, 0) == EINVAL);
  __be16 pkey = 0;
  CHECK(ibv_query_pkey(session.context.get(), 1, 0, &pkey) == 0);
  CHECK(pkey == 0xffff);
  CHECK(ibv_query_pkey(session.context.get(), 1, 1, &pkey) == -1);
}

TEST_CASE("the device's attributes fit old and new callers") {
  const Session session;
  ibv_device_attr plain{};
  REQUIRE(ibv_query_device(session.context.get(), &plain) == 0);
  CHECK(plain.vendor_id != 0);
  CHECK(plain.max_pkeys == 1);
  CHECK(plain.node_guid == ibv_get_device_guid(session.context->device));
  ibv_device_attr_ex extended{};
  REQUIRE(ibv_query_device_ex(session.context.get(), nullptr, &extended) == 0);
  CHECK(memcmp(&extended.orig_attr, &plain, sizeof plain) == 0);
  CHECK(extended.phys_port_cnt_ex == 1);
  const ibv_query_device_ex_input input{1};
  CHECK(ibv_query_device_ex(session.context.get(), &input, &extended) == EINVAL);
}

TEST_CASE("a protection domain in use stays") {
  const Session session;
  std::vector<std::byte> memory(64);
  auto mr = session.register_all(memory, 0);
  CHECK(ibv_dealloc_pd(session.pd.get()) == EBUSY);
  mr.reset();
  const auto cq = session.make_cq(8);
  const auto qp = session.make_qp(cq.get());
  CHECK(ibv_dealloc_pd(session.pd.get()) == EBUSY);
}

TEST_CASE("a protection domain with address handles stays") {
  const Session session;
  ibv_ah_attr address{};
  address.port_num = 1;
  CHECK(refusal_of(ibv_create_ah(session.pd.get(), &address)) == EINVAL);  // no GRH
  address.is_global = 1;
  address.grh.sgid_index = 1;
  address.grh.dgid.raw[15] = 1;
  const Owned<ibv_ah> ah(ibv_create_ah(session.pd.get(), &address));
  REQUIRE(ah != nullptr);
  CHECK(ibv_dealloc_pd(session.pd.get()) == EBUSY);
}

TEST_CASE("memory is registered with the rights that hardware would grant") {
  const Session session;
  std::vector<std::byte> memory(64);
  const auto refused = [&](int access) {
    const Owned<ibv_mr> mr((ibv_reg_mr)(session.pd.get(), memory.data(), memory.size(), access));
    return refusal_of(mr.get());
  };
  constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC;
  CHECK(refused(0) == 0);
  CHECK(refused(kAll | IBV_ACCESS_RELAXED_ORDERING) == 0);
  CHECK(refused(IBV_ACCESS_REMOTE_READ) == 0);
  CHECK(refused(IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(refused(IBV_ACCESS_REMOTE_ATOMIC) == EINVAL);
  CHECK(refused(IBV_ACCESS_ON_DEMAND) == EINVAL);
  CHECK(refused(1 << 15) == EINVAL);
}

TEST_CASE("memory that is not mapped, or read-only but to be written, is not registered") {
  const Session session;
  void* const page = mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  const auto refused = [&](int access) {
    const Owned<ibv_mr> mr((ibv_reg_mr)(session.pd.get(), page, 8192, access));
    return refusal_of(mr.get());
  };
  CHECK(refused(IBV_ACCESS_REMOTE_READ) == 0);
  CHECK(refused(IBV_ACCESS_LOCAL_WRITE) == EFAULT);
  munmap(page, 4096);
  CHECK(refused(IBV_ACCESS_REMOTE_READ) == EFAULT);
  munmap(page, 8192);
}

TEST_CASE("an iova is any address at the same place in its page") {
  const Session session;
  std::vector<std::byte> memory(64);
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  const Owned<ibv_mr> mr(
      (ibv_reg_mr_iova)(session.pd.get(), memory.data(), 64, address + (1 << 20), 0));
  CHECK(mr != nullptr);
  CHECK(refusal_of((ibv_reg_mr_iova)(session.pd.get(), memory.data(), 64, address + 8, 0)) ==
        EINVAL);
}

TEST_CASE("completion queues have 1 to max_cqe entries and one of the vectors") {
  const Session session;
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(session.context.get(), &device) == 0);
  const auto refused = [&](int entries, int vector) {
    const Owned<ibv_cq> cq(ibv_create_cq(session.context.get(), entries, nullptr, nullptr, vector));
    if (cq != nullptr) CHECK(cq->cqe >= entries);
    return refusal_of(cq.get());
  };
  CHECK(refused(1, 0) == 0);
  CHECK(refused(device.max_cqe, session.context->num_comp_vectors - 1) == 0);
  CHECK(refused(0, 0) == EINVAL);
  CHECK(refused(-1, 0) == EINVAL);
  CHECK(refused(device.max_cqe + 1, 0) == EINVAL);
  CHECK(refused(1, -1) == EINVAL);
  CHECK(refused(1, session.context->num_comp_vectors) == EINVAL);
}

TEST_CASE("a completion queue in use stays") {
  const Session session;
  const auto cq = session.make_cq(8);
  const auto qp = session.make_qp(cq.get());
  CHECK(ibv_destroy_cq(cq.get()) == EBUSY);
}

TEST_CASE("queue pairs are granted what they ask for, up to the limits") {
  const Session session;
  const auto cq = session.make_cq(8);
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(session.context.get(), &device) == 0);
  auto attributes = rc_attributes(cq.get());
  const auto max_wr = static_cast<uint32_t>(device.max_qp_wr);
  const auto max_sge = static_cast<uint32_t>(device.max_sge);
  attributes.cap = {max_wr, max_wr, max_sge, max_sge, 512};
  {
    const Owned<ibv_qp> qp(ibv_create_qp(session.pd.get(), &attributes));
    REQUIRE(qp != nullptr);
    CHECK(attributes.cap.max_send_wr >= max_wr);
  }
  const auto refused = [&](ibv_qp_cap cap) {
    attributes.cap = cap;
    const Owned<ibv_qp> qp(ibv_create_qp(session.pd.get(), &attributes));
    return refusal_of(qp.get());
  };
  CHECK(refused({max_wr + 1, 1, 1, 1, 0}) == EINVAL);
  CHECK(refused({1, max_wr + 1, 1, 1, 0}) == EINVAL);
  CHECK(refused({1, 1, max_sge + 1, 1, 0}) == EINVAL);
  CHECK(refused({1, 1, 1, max_sge + 1, 0}) == EINVAL);
  CHECK(refused({1, 1, 1, 1, 513}) == EINVAL);
}

TEST_CASE("queue pairs of other types, or with what we do not have, are not supported") {
  const Session session;
  const auto cq = session.make_cq(8);
  for (const auto type : {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND}) {
    auto attributes = rc_attributes(cq.get());
    attributes.qp_type = type;
    CHECK(refusal_of(ibv_create_qp(session.pd.get(), &attributes)) == EOPNOTSUPP);
  }
  auto attributes = rc_attributes(cq.get());
  ibv_srq srq{};
  attributes.srq = &srq;
  CHECK(refusal_of(ibv_create_qp(session.pd.get(), &attributes)) == EOPNOTSUPP);
}

TEST_CASE("a queue pair needs both completion queues") {
  const Session session;
  const auto cq = session.make_cq(8);
  auto attributes = rc_attributes(cq.get());
  attributes.recv_cq = nullptr;
  CHECK(refusal_of(ibv_create_qp(session.pd.get(), &attributes)) == EINVAL);
}

TEST_CASE("objects of another context are refused") {
  const Session here, there;
  const auto channel = there.make_channel();
  CHECK(refusal_of(ibv_create_cq(here.context.get(), 8, nullptr, channel.get(), 0)) == EINVAL);
  const auto foreign_cq = there.make_cq(8);
  auto attributes = rc_attributes(foreign_cq.get());
  CHECK(refusal_of(ibv_create_qp(here.pd.get(), &attributes)) == EINVAL);
}

TEST_CASE("extended creation of queue pairs takes the plain attributes only") {
  const Session session;
  const auto cq = session.make_cq(8);
  ibv_qp_init_attr_ex attributes{};
  const auto plain = rc_attributes(cq.get());
  memcpy(&attributes, &plain, offsetof(ibv_qp_init_attr, sq_sig_all) + sizeof(int));
  attributes.pd = session.pd.get();
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  const Owned<ibv_qp> qp(ibv_create_qp_ex(session.context.get(), &attributes));
  CHECK(qp != nullptr);
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  CHECK(refusal_of(ibv_create_qp_ex(session.context.get(), &attributes)) == EOPNOTSUPP);
  const Session other;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  CHECK(refusal_of(ibv_create_qp_ex(other.context.get(), &attributes)) == EINVAL);
  attributes.comp_mask = 0;
  CHECK(refusal_of(ibv_create_qp_ex(session.context.get(), &attributes)) == EINVAL);
}

TEST_CASE("verbs that are not served return exactly EOPNOTSUPP") {
  const Session session;
  ibv_srq_init_attr srq{};
  CHECK(refusal_of(ibv_create_srq(session.pd.get(), &srq)) == EOPNOTSUPP);
  CHECK(refusal_of(ibv_alloc_mw(session.pd.get(), IBV_MW_TYPE_1)) == EOPNOTSUPP);
  ibv_xrcd_init_attr xrcd{};
  CHECK(refusal_of(ibv_open_xrcd(session.context.get(), &xrcd)) == EOPNOTSUPP);
  const auto cq = session.make_cq(8);
  CHECK(ibv_resize_cq(cq.get(), 16) == EOPNOTSUPP);
  const auto qp = session.make_qp(cq.get());
  const ibv_gid group{};
  CHECK(ibv_attach_mcast(qp.get(), &group, 0) == EOPNOTSUPP);
}

TEST_CASE("at log level info each refusal says why in one line") {
  const Session session;
  std::string file = std::filesystem::temp_directory_path() / "uroce-log.XXXXXX";
  close(mkstemp(file.data()));
  datapath::log_to(datapath::LogLevel::kInfo, file);
  CHECK(ibv_create_cq(session.context.get(), 0, nullptr, nullptr, 0) == nullptr);
  CHECK(ibv_alloc_mw(session.pd.get(), IBV_MW_TYPE_1) == nullptr);
  CHECK((ibv_reg_mr)(session.pd.get(), nullptr, 64, 0) == nullptr);
  const auto cq = session.make_cq(8);
  const auto qp = session.make_qp(cq.get());
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(qp.get(), &attributes, IBV_QP_STATE) == EINVAL);
  ibv_send_wr send{};
  ibv_send_wr* bad = nullptr;
  CHECK(ibv_post_send(qp.get(), &send, &bad) == EINVAL);
  datapath::log_to(datapath::LogLevel::kWarning, "");

  std::ifstream lines(file);
  for (const char* verb : {"create_cq", "alloc_mw", "reg_mr", "modify_qp", "post_send"}) {
    std::string line;
    REQUIRE(std::getline(lines, line));
    CHECK(line.find(verb) != std::string::npos);
  }
  std::string surplus;
  CHECK(!std::getline(lines, surplus));
  std::filesystem::remove(file);
}

TEST_CASE("modify_qp refuses what the state table does not allow, and changes nothing") {
  const Session session;
  const auto cq = session.make_cq(8);
  const auto qp = session.make_qp(cq.get());
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  CHECK(ibv_modify_qp(qp.get(), &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT) ==
        EINVAL);  // the access flags are missing
  attributes.qp_state = IBV_QPS_RTS;
  CHECK(ibv_modify_qp(qp.get(), &attributes, IBV_QP_STATE) == EINVAL);
  ibv_qp_init_attr initial{};
  REQUIRE(ibv_query_qp(qp.get(), &attributes, IBV_QP_STATE, &initial) == 0);
  CHECK(attributes.qp_state == IBV_QPS_RESET);
  CHECK(initial.send_cq == cq.get());
  CHECK(initial.sq_sig_all == 1);
  CHECK(initial.cap.max_send_wr == 8);
}

TEST_CASE("a list of posts stops at the first refusal and names it") {
  const Session session;
  const auto cq = session.make_cq(32);
  const auto qp = session.make_qp(cq.get());
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  CHECK(ibv_post_send(qp.get(), &send, &bad_send) == EINVAL);  // RESET
  CHECK(bad_send == &send);
  REQUIRE(to_init(qp.get()) == 0);
  ibv_sge sges[3] = {};
  ibv_recv_wr second{}, first{};
  first.next = &second;
  second.sg_list = sges;
  second.num_sge = 3;
  ibv_recv_wr* bad = nullptr;
  CHECK(ibv_post_recv(qp.get(), &first, &bad) == EINVAL);  // too many SGEs
  CHECK(bad == &second);
  second.num_sge = -1;
  CHECK(ibv_post_recv(qp.get(), &second, &bad) == EINVAL);
  second.num_sge = 0;
  for (int i = 1; i < 8; ++i) REQUIRE(ibv_post_recv(qp.get(), &second, &bad) == 0);
  CHECK(ibv_post_recv(qp.get(), &second, &bad) == ENOMEM);  // full
  CHECK(bad == &second);
}

TEST_CASE("receives posted in the error state are flushed") {
  const Session session;
  const auto cq = session.make_cq(32);
  const auto qp = session.make_qp(cq.get());
  REQUIRE(to_init(qp.get()) == 0);
  REQUIRE(to_error(qp.get()) == 0);
  ibv_recv_wr receive{};
  receive.wr_id = 42;
  ibv_recv_wr* bad = nullptr;
  REQUIRE(ibv_post_recv(qp.get(), &receive, &bad) == 0);
  const auto done = poll_for(cq.get(), 1);
  REQUIRE(done.size() == 1);
  CHECK(done[0].status == IBV_WC_WR_FLUSH_ERR);
  CHECK(done[0].wr_id == 42);
}

TEST_CASE("what an application leaves behind goes with the context") {
  {
    ibv_context* const context = open_device(test_devices().at(0));
    REQUIRE(context != nullptr);
    ibv_pd* const pd = ibv_alloc_pd(context);
    ibv_cq* const cq = ibv_create_cq(context, 8, nullptr, create_comp_channel(context), 0);
    auto attributes = rc_attributes(cq);
    REQUIRE(ibv_create_qp(pd, &attributes) != nullptr);
    static std::byte memory[64];
    REQUIRE((ibv_reg_mr)(pd, memory, sizeof memory, 0) != nullptr);
    CHECK(ibv_close_device(context) == 0);
  }
  const Session again;
}

TEST_CASE("in a forked child the parent's objects answer EIO") {
  const Session session;
  const auto cq = session.make_cq(8);
  const auto qp = session.make_qp(cq.get());
  const pid_t child = fork();
  if (child == 0) {
    ibv_send_wr send{};
    ibv_send_wr* bad_send = nullptr;
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    ibv_wc completion;
    ibv_port_attr port;
    const bool refused = ibv_post_send(qp.get(), &send, &bad_send) == EIO &&
                         ibv_post_recv(qp.get(), &receive, &bad_receive) == EIO &&
                         ibv_poll_cq(cq.get(), 1, &completion) == -EIO &&
                         ibv_req_notify_cq(cq.get(), 0) == EIO &&
                         ibv_query_port(session.context.get(), 1, &port) == EIO &&
                         ibv_alloc_pd(session.context.get()) == nullptr && errno == EIO &&
                         ibv_destroy_qp(qp.get()) == EIO && ibv_destroy_cq(cq.get()) == EIO;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

}  // namespace
}  // namespace uroce::provider
