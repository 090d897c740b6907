// Completion channels. libibverbs would ask the kernel for one, so the preload calls these.
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "provider/refusal.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {

ibv_comp_channel* create_comp_channel(ibv_context* ibv) {
  Context& context = of(ibv);
  if (!context.device->alive()) return refuse_object(forked());
  auto pipe = EventPipe::open(EventPipe::Message::kCompletion);
  if (!pipe) return refuse_object(pipe.refusal());
  auto channel = std::make_unique<Channel>();
  channel->verbs.context = ibv;
  channel->verbs.fd = pipe.value()->read_fd();
  channel->events = std::move(pipe.value());
  ibv_comp_channel* const out = &channel->verbs;
  context.channels.add(std::move(channel));
  return out;
}

int destroy_comp_channel(ibv_comp_channel* ibv) {
  Context& context = of(ibv->context);
  if (!context.device->alive()) return refuse(forked());
  if (!context.channels.contains(ibv)) {
    return refuse({EINVAL, "destroy_comp_channel: no such channel"});
  }
  // libibverbs counts the channel's queues under this mutex.
  pthread_mutex_lock(&ibv->context->mutex);
  const int users = ibv->refcnt;
  pthread_mutex_unlock(&ibv->context->mutex);
  if (users != 0) {
    return refuse(because(EBUSY, "destroy_comp_channel: {} completion queues still use it", users));
  }
  close(ibv->fd);
  context.channels.remove(ibv);
  return 0;
}

}  // namespace uroce::provider
