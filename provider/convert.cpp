// Conversion of verbs values, and the proof that the enumerations agree.
#include "provider/convert.hpp"

#include <errno.h>
#include <string.h>

#include <bit>

#include "provider/refusal.hpp"

namespace uroce::provider {
namespace {

using transport::AddressVector;
using transport::QpAttributes;

constexpr uint32_t kQpnMask = 0xffffff;
constexpr uint32_t kFlowLabelMask = 0xfffff;

}  // namespace

ibv_mtu to_verbs(Mtu mtu) {
  return static_cast<ibv_mtu>(std::bit_width(bytes_of(mtu)) - 8);
}

Result<Mtu> mtu_from_verbs(ibv_mtu mtu) {
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) {
    return because(EINVAL, "path_mtu {} is not an ibv_mtu (1 to 5)", static_cast<int>(mtu));
  }
  return static_cast<Mtu>(128u << mtu);
}

Result<AddressVector> address_from_verbs(const ibv_ah_attr& attributes,
                                         const datapath::DeviceDescription& device) {
  const ibv_global_route& route = attributes.grh;
  if (attributes.is_global == 0) {
    return because(EINVAL, "address vector without GRH: RoCE addresses by GID, set is_global");
  }
  if (attributes.port_num != 1) {
    return because(EINVAL, "address vector with port_num {}: {} has port 1 only",
                   attributes.port_num, device.name);
  }
  if (route.sgid_index >= device.gids.size() || device.gids[route.sgid_index].gid.is_zero()) {
    return because(EINVAL, "address vector with sgid_index {}: {} has no GID there",
                   route.sgid_index, device.name);
  }
  AddressVector address;
  memcpy(address.destination_gid.bytes.data(), route.dgid.raw, sizeof route.dgid.raw);
  if (address.destination_gid.is_zero()) {
    return because(EINVAL, "address vector with an all-zero destination GID");
  }
  address.source_gid = device.gids[route.sgid_index].gid;
  address.source_gid_index = route.sgid_index;
  address.flow_label = route.flow_label & kFlowLabelMask;
  address.hop_limit = route.hop_limit;
  address.traffic_class = route.traffic_class;
  address.service_level = attributes.sl;
  return address;
}

ibv_ah_attr to_verbs(const AddressVector& address) {
  ibv_ah_attr out{};
  memcpy(out.grh.dgid.raw, address.destination_gid.bytes.data(), sizeof out.grh.dgid.raw);
  out.grh.flow_label = address.flow_label;
  out.grh.sgid_index = address.source_gid_index;
  out.grh.hop_limit = address.hop_limit;
  out.grh.traffic_class = address.traffic_class;
  out.sl = address.service_level;
  out.is_global = 1;
  out.port_num = 1;
  return out;
}

Result<QpAttributes> qp_attributes_from_verbs(const ibv_qp_attr& in,
                                              transport::QpAttributeMask mask,
                                              const datapath::DeviceDescription& device) {
  QpAttributes out;
  if ((mask & transport::kQpState) != 0) {
    if (in.qp_state > IBV_QPS_ERR) {
      return because(EINVAL, "modify_qp: qp_state {} is not a state",
                     static_cast<int>(in.qp_state));
    }
    out.state = static_cast<transport::QpState>(in.qp_state);
  }
  if ((mask & transport::kQpPort) != 0 && in.port_num != 1) {
    return because(EINVAL, "modify_qp: port_num {}, but {} has port 1 only", in.port_num,
                   device.name);
  }
  if ((mask & transport::kQpPkeyIndex) != 0 && in.pkey_index != 0) {
    return because(EINVAL, "modify_qp: pkey_index {}, but the table has index 0 only",
                   in.pkey_index);
  }
  if ((mask & transport::kQpPathMtu) != 0) {
    const auto mtu = mtu_from_verbs(in.path_mtu);
    if (!mtu) return mtu.refusal();
    out.path_mtu = mtu.value();
  }
  if ((mask & transport::kQpAv) != 0) {
    const auto address = address_from_verbs(in.ah_attr, device);
    if (!address) return address.refusal();
    out.address = address.value();
  }
  out.current_state = static_cast<transport::QpState>(in.cur_qp_state);
  out.qkey = in.qkey;
  out.rq_psn = Psn(in.rq_psn);
  out.sq_psn = Psn(in.sq_psn);
  out.destination_qpn = Qpn{in.dest_qp_num & kQpnMask};
  out.access = in.qp_access_flags;
  out.capabilities = capabilities_from_verbs(in.cap);
  out.pkey_index = in.pkey_index;
  out.port = in.port_num;
  out.max_rd_atomic = in.max_rd_atomic;
  out.max_dest_rd_atomic = in.max_dest_rd_atomic;
  out.min_rnr_timer = in.min_rnr_timer;
  out.ack_timeout = in.timeout;
  out.retry_count = in.retry_cnt;
  out.rnr_retry = in.rnr_retry;
  out.sqd_async_notify = in.en_sqd_async_notify != 0;
  return out;
}

ibv_qp_attr to_verbs(const QpAttributes& in) {
  ibv_qp_attr out{};
  out.qp_state = static_cast<ibv_qp_state>(in.state);
  out.cur_qp_state = static_cast<ibv_qp_state>(in.current_state);
  out.path_mtu = to_verbs(in.path_mtu);
  out.path_mig_state = IBV_MIG_MIGRATED;
  out.qkey = in.qkey;
  out.rq_psn = in.rq_psn.value();
  out.sq_psn = in.sq_psn.value();
  out.dest_qp_num = in.destination_qpn.value;
  out.qp_access_flags = in.access;
  out.cap = to_verbs(in.capabilities);
  out.ah_attr = to_verbs(in.address);
  out.pkey_index = in.pkey_index;
  out.port_num = in.port;
  out.max_rd_atomic = in.max_rd_atomic;
  out.max_dest_rd_atomic = in.max_dest_rd_atomic;
  out.min_rnr_timer = in.min_rnr_timer;
  out.timeout = in.ack_timeout;
  out.retry_cnt = in.retry_count;
  out.rnr_retry = in.rnr_retry;
  out.en_sqd_async_notify = in.sqd_async_notify;
  return out;
}

ibv_qp_cap to_verbs(const transport::QpCapabilities& in) {
  return {in.max_send_wr, in.max_recv_wr, in.max_send_sge, in.max_recv_sge, in.max_inline_data};
}

transport::QpCapabilities capabilities_from_verbs(const ibv_qp_cap& in) {
  return {in.max_send_wr, in.max_recv_wr, in.max_send_sge, in.max_recv_sge, in.max_inline_data};
}

void to_verbs(const transport::Completion& in, ibv_wc& out) {
  out = {};
  out.wr_id = in.wr_id;
  out.status = static_cast<ibv_wc_status>(in.status);
  out.opcode = static_cast<ibv_wc_opcode>(in.opcode);
  out.vendor_err = in.vendor_error;
  out.byte_len = in.byte_length;
  out.imm_data = in.immediate;
  out.qp_num = in.qpn.value;
  out.src_qp = in.source_qpn.value;
  out.wc_flags = in.flags;
}

int errno_of(transport::PostError error) {
  using transport::PostError;
  switch (error) {
    case PostError::kNone:
      return 0;
    case PostError::kQueueFull:
    case PostError::kInlineTooLong:
      return ENOMEM;
    case PostError::kWrongState:
    case PostError::kTooManySges:
    case PostError::kBadOpcode:
    case PostError::kMessageTooLong:
      return EINVAL;
  }
  return EINVAL;
}

}  // namespace uroce::provider
