// The verbs that this provider serves, each in the file named after its object. Signatures and
// return values are libibverbs': a pointer and errno, or an errno value.
//
// Refusals common to all: EIO in a forked child for what its parent opened, EINVAL for an object of
// another context or one that is gone.
#pragma once

#include "provider/abi34.hpp"
#include "provider/objects.hpp"

namespace uroce::provider {

// context.cpp
verbs_context* alloc_context(ibv_device* device, int command_fd, void* listed_device);
void free_context(ibv_context* context);
void async_event(ibv_context* context, ibv_async_event* event);

// query.cpp
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, size_t size);
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attributes);

// memory.cpp. EBUSY: a domain with regions, queue pairs or address handles.
ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);
ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access);
int dereg_mr(abi34::Mr* mr);

// address_handle.cpp
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes);
int destroy_ah(ibv_ah* ah);

// channel.cpp. destroy_comp_channel: EBUSY while CQs use it.
ibv_comp_channel* create_comp_channel(ibv_context* context);
int destroy_comp_channel(ibv_comp_channel* channel);

// cq.cpp
ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector);
int destroy_cq(ibv_cq* cq);
int poll_cq(ibv_cq* cq, int count, ibv_wc* completions);
int req_notify_cq(ibv_cq* cq, int solicited_only);
void cq_event(ibv_cq* cq);

// cq_ex.cpp
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes);

// qp.cpp
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial);
int destroy_qp(ibv_qp* qp);

// post.cpp
int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad);

// What every verb on an inherited object in a forked child is refused with.
inline Refusal forked() {
  return {EIO, "the process has forked since it opened this device: open it again in the child"};
}

}  // namespace uroce::provider
