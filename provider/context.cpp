// Contexts: an open device as one ibv_open_device sees it.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "provider/devices.hpp"
#include "provider/events.hpp"
#include "provider/refusal.hpp"
#include "provider/unserved.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {
namespace {

const abi34::ContextOps kOps = [] {
  abi34::ContextOps ops{};
  refuse_unserved(ops);
  ops.alloc_pd = alloc_pd;
  ops.async_event = async_event;
  ops.cq_event = cq_event;
  ops.create_ah = create_ah;
  ops.create_cq = create_cq;
  ops.create_cq_ex = create_cq_ex;
  ops.create_qp = create_qp;
  ops.create_qp_ex = create_qp_ex;
  ops.dealloc_pd = dealloc_pd;
  ops.dereg_mr = dereg_mr;
  ops.destroy_ah = destroy_ah;
  ops.destroy_cq = destroy_cq;
  ops.destroy_qp = destroy_qp;
  ops.free_context = free_context;
  ops.modify_qp = modify_qp;
  ops.poll_cq = poll_cq;
  ops.post_recv = post_recv;
  ops.post_send = post_send;
  ops.query_device_ex = query_device_ex;
  ops.query_port = query_port;
  ops.query_qp = query_qp;
  ops.reg_mr = reg_mr;
  ops.req_notify_cq = req_notify_cq;
  return ops;
}();

// What the application left behind goes as with a kernel device whose file is closed: queues first,
// then what they use.
void destroy_leftovers(Context& context) {
  datapath::OpenDevice& device = *context.device;
  const auto expect_done = [](const Status& status) {
    if (!status) datapath::log(datapath::LogLevel::kError, "close: {}", status.refusal().why);
  };
  while (const auto qp = context.qps.remove_any()) {
    expect_done(device.destroy_qp(*qp->engine));
    context.async_pipe->forget(qp->async_events);
  }
  while (const auto cq = context.cqs.remove_any()) {
    expect_done(device.destroy_cq(*cq->engine));
    if (cq->channel != nullptr) cq->channel->events->forget(cq->completion_events);
    context.async_pipe->forget(cq->async_events);
  }
  while (const auto channel = context.channels.remove_any()) close(channel->verbs.fd);
  while (const auto mr = context.mrs.remove_any()) {
    expect_done(device.deregister_region(Lkey{mr->verbs.mr.lkey}));
  }
  while (context.ahs.remove_any()) {
  }
  while (const auto pd = context.pds.remove_any()) expect_done(device.destroy_pd(pd->id));
}

}  // namespace

void Context::close_pipes_in_child() {
  async_pipe->close_in_child();
  channels.for_each_unlocked([](Channel& channel) { channel.events->close_in_child(); });
}

// Called by verbs_open_device, which has opened no character device. libibverbs sends its GID and
// P_Key queries as ioctls to the command descriptor: on /dev/null they fail with ENOTTY, and it
// falls back to reading the device directory.
verbs_context* alloc_context(ibv_device*, int, void* listed_device) {
  auto* const listed = static_cast<ListedDevice*>(listed_device);
  const std::string& name = listed->description.name;
  auto device = datapath::OpenDevice::open(configuration(), name);
  if (!device) return refuse_object(device.refusal());
  auto pipe = EventPipe::open(EventPipe::Message::kAsynchronous);
  if (!pipe) return refuse_object(pipe.refusal());
  const int command_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (command_fd < 0) {
    close(pipe.value()->read_fd());
    return refuse_object(because(errno, "open {}: /dev/null: {}", name, strerror(errno)));
  }
  auto* const shell = static_cast<ContextShell*>(abi34::_verbs_init_and_alloc_context(
      &listed->verbs.device, command_fd, sizeof(ContextShell), nullptr, 0));
  if (shell == nullptr) {
    close(pipe.value()->read_fd());
    return nullptr;
  }
  auto context = std::make_unique<Context>();
  context->verbs = &shell->verbs;
  context->device = std::move(device.value());
  context->async_pipe = std::move(pipe.value());
  context->device->set_event_sink(&events_of(name));
  add_context(*context);
  abi34::verbs_set_ops(&shell->verbs, &kOps);
  shell->verbs.context.num_comp_vectors = kCompletionVectors;
  shell->verbs.context.async_fd = context->async_pipe->read_fd();  // libibverbs closes it
  shell->context = context.release();
  return &shell->verbs;
}

void free_context(ibv_context* ibv) {
  const std::unique_ptr<Context> context(&of(ibv));
  remove_context(*context);
  if (context->device->alive()) destroy_leftovers(*context);
  abi34::verbs_uninit_context(context->verbs);
  free(context->verbs);
}

void async_event(ibv_context* ibv, ibv_async_event* event) {
  Context& context = of(ibv);
  if (!context.device->alive()) return;
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      return context.async_pipe->on_read(of(event->element.cq).async_events);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return context.async_pipe->on_read(of(event->element.qp).async_events);
    default:  // what is not about a queue is about the port
      return context.async_pipe->on_read(context.port_events);
  }
}

}  // namespace uroce::provider
