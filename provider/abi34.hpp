// The part of libibverbs' private interface, ABI 34, that a provider is built on.
//
// Debian packages no header for it, so the layouts are declared here, as read from rdma-core 44;
// rdma-core 36 to 56 have the same. Another private ABI has another symbol version: a plug-in built
// from this header does not load there (see preload.cpp for the message).
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace uroce::provider::abi34 {

struct ListNode {
  ListNode* next;
  ListNode* previous;
};

struct MatchEntry {
  void* driver_data;
  union {
    const char* modalias;
    uint64_t driver_id;
  } key;
  uint16_t vendor;
  uint16_t device;
  uint8_t kind;
};

// Bits of SysfsDevice::flags: the value is known and need not be read from a file.
inline constexpr unsigned kModaliasKnown = 1u << 0;
inline constexpr unsigned kNodeGuidKnown = 1u << 1;

// Where libibverbs found a device. One malloc of its own: libibverbs frees it with the device.
struct SysfsDevice {
  ListNode entry;
  void* provider_data;
  const MatchEntry* match;
  unsigned flags;
  char sysfs_name[IBV_SYSFS_NAME_MAX];  // of the character device, e.g. "uverbs0"
  dev_t sysfs_cdev;
  char ibdev_name[IBV_SYSFS_NAME_MAX];
  char ibdev_path[IBV_SYSFS_PATH_MAX];  // the folder that answers GID, P_Key and GUID queries
  char modalias[512];
  uint64_t node_guid;  // host order
  uint32_t driver_id;
  ibv_node_type node_type;
  int ibdev_index;  // -1: none
  uint32_t port_count;
  uint32_t abi_version;
  timespec time_created;
};

struct Device;

struct DeviceOps {
  const char* name;
  uint32_t match_min_abi_version;
  uint32_t match_max_abi_version;
  const MatchEntry* match_table;
  const DeviceOps** static_providers;
  bool (*match_device)(SysfsDevice* sysfs);
  verbs_context* (*alloc_context)(ibv_device* device, int command_fd, void* private_data);
  verbs_context* (*import_context)(ibv_device* device, int command_fd);
  Device* (*alloc_device)(SysfsDevice* sysfs);
  void (*uninit_device)(Device* device);
};

struct Device {
  ibv_device device;  // must be first
  const DeviceOps* ops;
  std::atomic<int> references;
  ListNode entry;
  SysfsDevice* sysfs;     // null: verbs_open_device opens no character device
  uint64_t core_support;  // kOptionalAccessSupported
};

// Bit of Device::core_support: access flags of the optional range reach the provider.
inline constexpr uint64_t kOptionalAccessSupported = 1u << 0;

enum class MrType : int { kMr = 0 };

struct Mr {
  ibv_mr mr;
  MrType type;
  int access;
};

inline constexpr uint32_t kQpHasExtendedOps = 1u << 1;  // bit of Qp::comp_mask

struct Qp {
  union {
    ibv_qp qp;
    ibv_qp_ex qp_ex;
  };
  uint32_t comp_mask;
  void* xrcd;
};

struct Cq {
  union {
    ibv_cq cq;
    ibv_cq_ex cq_ex;
  };
};

using UnusedOp = void (*)();

// Every verb a provider may serve, in alphabetical order; a null entry is answered with EOPNOTSUPP.
struct ContextOps {
  UnusedOp advise_mr;
  UnusedOp alloc_dm;
  UnusedOp alloc_mw;
  UnusedOp alloc_null_mr;
  UnusedOp alloc_parent_domain;
  ibv_pd* (*alloc_pd)(ibv_context* context);
  UnusedOp alloc_td;
  void (*async_event)(ibv_context* context, ibv_async_event* event);
  UnusedOp attach_counters_point_flow;
  UnusedOp attach_mcast;
  UnusedOp bind_mw;
  UnusedOp close_xrcd;
  void (*cq_event)(ibv_cq* cq);
  ibv_ah* (*create_ah)(ibv_pd* pd, ibv_ah_attr* attributes);
  UnusedOp create_counters;
  ibv_cq* (*create_cq)(ibv_context* context, int entries, ibv_comp_channel* channel, int vector);
  ibv_cq_ex* (*create_cq_ex)(ibv_context* context, ibv_cq_init_attr_ex* attributes);
  UnusedOp create_flow;
  UnusedOp create_flow_action_esp;
  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attributes);
  ibv_qp* (*create_qp_ex)(ibv_context* context, ibv_qp_init_attr_ex* attributes);
  UnusedOp create_rwq_ind_table;
  UnusedOp create_srq;
  UnusedOp create_srq_ex;
  UnusedOp create_wq;
  UnusedOp dealloc_mw;
  int (*dealloc_pd)(ibv_pd* pd);
  UnusedOp dealloc_td;
  int (*dereg_mr)(Mr* mr);
  int (*destroy_ah)(ibv_ah* ah);
  UnusedOp destroy_counters;
  int (*destroy_cq)(ibv_cq* cq);
  UnusedOp destroy_flow;
  UnusedOp destroy_flow_action;
  int (*destroy_qp)(ibv_qp* qp);
  UnusedOp destroy_rwq_ind_table;
  UnusedOp destroy_srq;
  UnusedOp destroy_wq;
  UnusedOp detach_mcast;
  void (*free_context)(ibv_context* context);
  UnusedOp free_dm;
  UnusedOp get_srq_num;
  UnusedOp import_dm;
  UnusedOp import_mr;
  UnusedOp import_pd;
  UnusedOp modify_cq;
  UnusedOp modify_flow_action_esp;
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
  UnusedOp modify_qp_rate_limit;
  UnusedOp modify_srq;
  UnusedOp modify_wq;
  UnusedOp open_qp;
  UnusedOp open_xrcd;
  int (*poll_cq)(ibv_cq* cq, int count, ibv_wc* completions);
  int (*post_recv)(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad);
  int (*post_send)(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad);
  UnusedOp post_srq_ops;
  UnusedOp post_srq_recv;
  int (*query_device_ex)(ibv_context* context, const ibv_query_device_ex_input* input,
                         ibv_device_attr_ex* attributes, size_t size);
  UnusedOp query_ece;
  int (*query_port)(ibv_context* context, uint8_t port, ibv_port_attr* attributes);
  int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial);
  UnusedOp query_qp_data_in_order;
  UnusedOp query_rt_values;
  UnusedOp query_srq;
  UnusedOp read_counters;
  UnusedOp reg_dm_mr;
  UnusedOp reg_dmabuf_mr;
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access);
  int (*req_notify_cq)(ibv_cq* cq, int solicited_only);
  UnusedOp rereg_mr;
  UnusedOp resize_cq;
  UnusedOp set_ece;
  UnusedOp unimport_dm;
  UnusedOp unimport_mr;
  UnusedOp unimport_pd;
};

extern "C" {
void verbs_register_driver_34(const DeviceOps* ops);
void* _verbs_init_and_alloc_context(ibv_device* device, int command_fd, size_t size,
                                    verbs_context* offset, uint32_t driver_id);
void verbs_uninit_context(verbs_context* context);
void verbs_set_ops(verbs_context* context, const ContextOps* ops);
ibv_context* verbs_open_device(ibv_device* device, void* private_data);
}

// The layouts of rdma-core 44 on 64-bit machines.
static_assert(sizeof(void*) == 8, "uroce needs a 64-bit machine");
static_assert(sizeof(MatchEntry) == 24 && offsetof(MatchEntry, kind) == 20);
static_assert(offsetof(SysfsDevice, flags) == 32 && offsetof(SysfsDevice, sysfs_name) == 36);
static_assert(offsetof(SysfsDevice, sysfs_cdev) == 104 && offsetof(SysfsDevice, ibdev_name) == 112);
static_assert(offsetof(SysfsDevice, ibdev_path) == 176 && offsetof(SysfsDevice, modalias) == 432);
static_assert(offsetof(SysfsDevice, node_guid) == 944 && offsetof(SysfsDevice, node_type) == 956);
static_assert(offsetof(SysfsDevice, port_count) == 964 &&
              offsetof(SysfsDevice, abi_version) == 968);
static_assert(offsetof(SysfsDevice, time_created) == 976 && sizeof(SysfsDevice) == 992);
static_assert(offsetof(DeviceOps, match_device) == 32 && offsetof(DeviceOps, alloc_context) == 40);
static_assert(offsetof(DeviceOps, alloc_device) == 56 && sizeof(DeviceOps) == 72);
static_assert(offsetof(Device, ops) == 664 && offsetof(Device, references) == 672);
static_assert(offsetof(Device, sysfs) == 696 && offsetof(Device, core_support) == 704);
static_assert(sizeof(Device) == 712);
static_assert(offsetof(Mr, type) == 48 && offsetof(Mr, access) == 52 && sizeof(Mr) == 56);
static_assert(offsetof(Qp, comp_mask) == 352 && sizeof(Qp) == 368);
static_assert(sizeof(Cq) == 288 && sizeof(verbs_context) == 648);
static_assert(offsetof(ContextOps, alloc_pd) == 40 && offsetof(ContextOps, async_event) == 56);
static_assert(offsetof(ContextOps, cq_event) == 96 && offsetof(ContextOps, create_cq) == 120);
static_assert(offsetof(ContextOps, create_qp) == 152 && offsetof(ContextOps, dereg_mr) == 224);
static_assert(offsetof(ContextOps, free_context) == 312 && offsetof(ContextOps, modify_qp) == 376);
static_assert(offsetof(ContextOps, poll_cq) == 424 && offsetof(ContextOps, post_recv) == 432);
static_assert(offsetof(ContextOps, post_send) == 440 && offsetof(ContextOps, query_port) == 480);
static_assert(offsetof(ContextOps, query_device_ex) == 464 && offsetof(ContextOps, reg_mr) == 544);
static_assert(offsetof(ContextOps, req_notify_cq) == 552 && sizeof(ContextOps) == 608);

}  // namespace uroce::provider::abi34
