// Conversion between the values of <infiniband/verbs.h> and transport's.
#include "provider/convert.hpp"

#include <errno.h>
#include <string.h>

#include "tests/catch.hpp"

namespace uroce::provider {
namespace {

datapath::DeviceDescription device() {
  datapath::DeviceDescription out;
  out.name = "uroce0";
  out.gids.resize(4);
  out.gids[1].gid = Gid::from_ipv4(127, 1, 2, 3);
  return out;
}

ibv_ah_attr address() {
  ibv_ah_attr out{};
  out.is_global = 1;
  out.port_num = 1;
  out.sl = 3;
  out.grh.sgid_index = 1;
  out.grh.hop_limit = 9;
  out.grh.traffic_class = 0x68;
  out.grh.flow_label = 0x12345;
  out.grh.dgid.raw[15] = 7;
  return out;
}

ibv_qp_attr to_rtr() {
  ibv_qp_attr out{};
  out.qp_state = IBV_QPS_RTR;
  out.path_mtu = IBV_MTU_1024;
  out.ah_attr = address();
  out.dest_qp_num = 0xff010203;
  out.rq_psn = 0xff000001;
  out.port_num = 1;
  return out;
}

constexpr auto kRtrMask =
    transport::kQpState | transport::kQpAv | transport::kQpPathMtu | transport::kQpDestQpn;

template <typename T>
int error_of(const Result<T>& result) {
  return result ? 0 : result.refusal().error;
}

TEST_CASE("the five path MTUs convert both ways, nothing else does") {
  for (const auto mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    const auto converted = mtu_from_verbs(mtu);
    REQUIRE(converted.ok());
    CHECK(bytes_of(converted.value()) == 128u << mtu);
    CHECK(to_verbs(converted.value()) == mtu);
  }
  CHECK(error_of(mtu_from_verbs(ibv_mtu{})) == EINVAL);
  CHECK(error_of(mtu_from_verbs(static_cast<ibv_mtu>(6))) == EINVAL);
}

TEST_CASE("an address vector takes its source GID from the table and converts back") {
  const auto converted = address_from_verbs(address(), device());
  REQUIRE(converted.ok());
  CHECK(converted->source_gid == Gid::from_ipv4(127, 1, 2, 3));
  CHECK(converted->destination_gid.bytes[15] == 7);
  CHECK(converted->flow_label == 0x12345);
  CHECK(converted->hop_limit == 9);
  CHECK(converted->traffic_class == 0x68);
  CHECK(converted->service_level == 3);
  const ibv_ah_attr back = to_verbs(converted.value());
  const ibv_ah_attr expected = address();
  CHECK(memcmp(&back, &expected, sizeof back) == 0);
}

TEST_CASE("an address without GRH is refused") {
  auto in = address();
  in.is_global = 0;
  CHECK(error_of(address_from_verbs(in, device())) == EINVAL);
}

TEST_CASE("an address on another port is refused") {
  auto in = address();
  in.port_num = 2;
  CHECK(error_of(address_from_verbs(in, device())) == EINVAL);
  in.port_num = 0;
  CHECK(error_of(address_from_verbs(in, device())) == EINVAL);
}

TEST_CASE("a source GID index that is empty or beyond the table is refused") {
  auto in = address();
  in.grh.sgid_index = 2;
  CHECK(error_of(address_from_verbs(in, device())) == EINVAL);
  in.grh.sgid_index = 4;
  CHECK(error_of(address_from_verbs(in, device())) == EINVAL);
}

TEST_CASE("an address without destination is refused") {
  auto in = address();
  in.grh.dgid.raw[15] = 0;
  CHECK(error_of(address_from_verbs(in, device())) == EINVAL);
}

TEST_CASE("attributes of a queue pair convert, 24-bit numbers without their top byte") {
  const auto converted = qp_attributes_from_verbs(to_rtr(), kRtrMask, device());
  REQUIRE(converted.ok());
  CHECK(converted->state == transport::QpState::kRtr);
  CHECK(converted->path_mtu == Mtu::k1024);
  CHECK(converted->destination_qpn == Qpn{0x010203});
  CHECK(converted->rq_psn == Psn(1));
  const auto back = to_verbs(converted.value());
  CHECK(back.qp_state == IBV_QPS_RTR);
  CHECK(back.path_mtu == IBV_MTU_1024);
  CHECK(back.dest_qp_num == 0x010203);
  CHECK(back.ah_attr.grh.sgid_index == 1);
}

TEST_CASE("members that the mask does not name are not looked at") {
  ibv_qp_attr garbage;
  memset(&garbage, 0xee, sizeof garbage);
  CHECK(error_of(qp_attributes_from_verbs(garbage, transport::kQpQkey, device())) == 0);
}

TEST_CASE("a state, port, P_Key index, path MTU or address that cannot be is refused") {
  const auto refused = [](auto change, transport::QpAttributeMask mask) {
    auto in = to_rtr();
    change(in);
    return error_of(qp_attributes_from_verbs(in, mask, device()));
  };
  CHECK(refused([](auto& in) { in.qp_state = IBV_QPS_UNKNOWN; }, transport::kQpState) == EINVAL);
  CHECK(refused([](auto& in) { in.port_num = 2; }, transport::kQpPort) == EINVAL);
  CHECK(refused([](auto& in) { in.pkey_index = 1; }, transport::kQpPkeyIndex) == EINVAL);
  CHECK(refused([](auto& in) { in.path_mtu = ibv_mtu{}; }, transport::kQpPathMtu) == EINVAL);
  CHECK(refused([](auto& in) { in.ah_attr.is_global = 0; }, transport::kQpAv) == EINVAL);
}

TEST_CASE("a completion converts whole") {
  transport::Completion in;
  in.wr_id = 1;
  in.byte_length = 2;
  in.immediate = 3;
  in.qpn = {4};
  in.source_qpn = {5};
  in.status = transport::CompletionStatus::kRetryExceededError;
  in.opcode = transport::CompletionOpcode::kRecvRdmaWithImm;
  in.flags = transport::kWithImm;
  in.vendor_error = 6;
  ibv_wc out;
  memset(&out, 0xee, sizeof out);
  to_verbs(in, out);
  CHECK(out.wr_id == 1);
  CHECK(out.byte_len == 2);
  CHECK(out.imm_data == 3);
  CHECK(out.qp_num == 4);
  CHECK(out.src_qp == 5);
  CHECK(out.status == IBV_WC_RETRY_EXC_ERR);
  CHECK(out.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(out.wc_flags == IBV_WC_WITH_IMM);
  CHECK(out.vendor_err == 6);
  CHECK((out.pkey_index | out.slid | out.sl | out.dlid_path_bits) == 0);
}

TEST_CASE("refused posts return what mlx5 returns") {
  using transport::PostError;
  CHECK(errno_of(PostError::kNone) == 0);
  CHECK(errno_of(PostError::kQueueFull) == ENOMEM);
  CHECK(errno_of(PostError::kInlineTooLong) == ENOMEM);
  CHECK(errno_of(PostError::kWrongState) == EINVAL);
  CHECK(errno_of(PostError::kTooManySges) == EINVAL);
  CHECK(errno_of(PostError::kBadOpcode) == EINVAL);
  CHECK(errno_of(PostError::kMessageTooLong) == EINVAL);
}

}  // namespace
}  // namespace uroce::provider
