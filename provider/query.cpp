// What the device and its port say of themselves.
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "provider/convert.hpp"
#include "provider/identity.hpp"
#include "provider/refusal.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {
namespace {

ibv_device_attr device_attributes(const datapath::DeviceDescription& device,
                                  const transport::HcaLimits& limits) {
  ibv_device_attr out{};
  strncpy(out.fw_ver, kFirmwareVersion, sizeof out.fw_ver - 1);
  out.node_guid = htobe64(device.node_guid);
  out.sys_image_guid = htobe64(device.system_guid);
  out.max_mr_size = limits.max_mr_size;
  out.page_size_cap = ~uint64_t{0} << 12;  // every power of two from 4 KiB on
  out.vendor_id = kVendorId;
  out.vendor_part_id = kVendorPartId;
  out.hw_ver = 1;
  out.max_qp = static_cast<int>(limits.max_qp);
  out.max_qp_wr = static_cast<int>(limits.max_qp_wr);
  out.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
                         IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT;
  out.max_sge = static_cast<int>(limits.max_sge);
  out.max_sge_rd = static_cast<int>(limits.max_sge);
  out.max_cq = static_cast<int>(limits.max_cq);
  out.max_cqe = static_cast<int>(limits.max_cqe);
  out.max_mr = static_cast<int>(limits.max_mr);
  out.max_pd = static_cast<int>(limits.max_pd);
  out.max_qp_rd_atom = static_cast<int>(limits.max_rd_atomic);
  out.max_res_rd_atom = static_cast<int>(limits.max_rd_atomic * limits.max_qp);
  out.max_qp_init_rd_atom = static_cast<int>(limits.max_rd_atomic);
  out.atomic_cap = IBV_ATOMIC_HCA;
  out.max_ah = kMaxAddressHandles;
  out.max_pkeys = 1;
  out.local_ca_ack_delay = kLocalAckDelay;
  out.phys_port_cnt = 1;
  return out;
}

}  // namespace

int query_device_ex(ibv_context* ibv, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, size_t size) {
  Context& context = of(ibv);
  if (!context.device->alive()) return refuse(forked());
  if (input != nullptr && input->comp_mask != 0) {
    return refuse({EINVAL, "query_device_ex: unknown bits in the input's comp_mask"});
  }
  if (size < sizeof attributes->orig_attr) {
    return refuse({EINVAL, "query_device_ex: too little room for the attributes"});
  }
  memset(attributes, 0, size);
  attributes->orig_attr =
      device_attributes(context.device->description(), context.device->limits());
  if (size >= sizeof *attributes) {
    attributes->device_cap_flags_ex = attributes->orig_attr.device_cap_flags;
    attributes->phys_port_cnt_ex = 1;
  }
  return 0;
}

int query_port(ibv_context* ibv, uint8_t port, ibv_port_attr* out) {
  Context& context = of(ibv);
  if (!context.device->alive()) return refuse(forked());
  const datapath::DeviceDescription& device = context.device->description();
  if (port != 1) {
    return refuse(
        because(EINVAL, "query_port: port {}, but {} has port 1 only", port, device.name));
  }
  *out = {};
  out->state = device.link_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  out->max_mtu = to_verbs(device.max_mtu);
  out->active_mtu = to_verbs(device.active_mtu);
  out->gid_tbl_len = static_cast<int>(device.gids.size());
  out->port_cap_flags = kPortCapabilities;
  out->max_msg_sz = context.device->limits().max_message_bytes;
  out->pkey_tbl_len = 1;
  out->max_vl_num = 1;
  out->active_width = kActiveWidth;
  out->active_speed = kActiveSpeed;
  out->phys_state = device.link_up ? kPhysicalLinkUp : kPhysicalDisabled;
  out->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

}  // namespace uroce::provider
