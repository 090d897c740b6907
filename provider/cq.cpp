// Completion queues.
#include <errno.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <span>

#include "provider/acknowledge.hpp"
#include "provider/convert.hpp"
#include "provider/refusal.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {
namespace {

Status check_creation(const Context& context, int entries, const ibv_comp_channel* channel,
                      int vector) {
  const auto max = static_cast<int>(context.device->limits().max_cqe);
  if (entries <= 0 || entries > max) {
    return because(EINVAL, "create_cq: {} entries asked, 1 to {} can be had", entries, max);
  }
  if (vector < 0 || vector >= kCompletionVectors) {
    return because(EINVAL, "create_cq: comp_vector {}, but vectors are 0 to {}", vector,
                   kCompletionVectors - 1);
  }
  if (channel != nullptr && !context.channels.contains(channel)) {
    return because(EINVAL, "create_cq: the completion channel is not one of this context");
  }
  return Done{};
}

size_t poll_some(Cq& cq, std::span<transport::Completion> out) {
  const std::lock_guard lock(cq.lock);
  return cq.engine->poll(out);
}

}  // namespace

ibv_cq* create_cq(ibv_context* ibv, int entries, ibv_comp_channel* channel, int vector) {
  Context& context = of(ibv);
  if (!context.device->alive()) return refuse_object(forked());
  const auto allowed = check_creation(context, entries, channel, vector);
  if (!allowed) return refuse_object(allowed.refusal());

  auto cq = std::make_unique<Cq>();
  cq->context = &context;
  cq->device = context.device.get();
  cq->channel = channel != nullptr ? &of(channel) : nullptr;
  const auto engine = context.device->create_cq(static_cast<uint32_t>(entries), cq.get());
  if (!engine) return refuse_object(engine.refusal());
  cq->engine = engine.value();
  ibv_cq* const out = &cq->verbs.cq;
  out->context = ibv;
  out->channel = channel;
  out->cqe = static_cast<int>(cq->engine->capacity());
  context.cqs.add(std::move(cq));
  return out;
}

int destroy_cq(ibv_cq* ibv) {
  Context& context = of(ibv->context);
  if (!context.device->alive()) return refuse(forked());
  if (!context.cqs.contains(ibv)) return refuse({EINVAL, "destroy_cq: no such completion queue"});
  Cq& cq = of(ibv);
  const auto done = context.device->destroy_cq(*cq.engine);
  if (!done) return refuse(done.refusal());
  const uint32_t completion_events =
      cq.channel != nullptr ? cq.channel->events->forget(cq.completion_events) : 0;
  const uint32_t async_events = context.async_pipe->forget(cq.async_events);
  wait_acknowledged(ibv->mutex, ibv->cond,
                    {{&ibv->comp_events_completed, completion_events},
                     {&ibv->async_events_completed, async_events}});
  context.cqs.remove(ibv);
  return 0;
}

int poll_cq(ibv_cq* ibv, int count, ibv_wc* completions) {
  constexpr size_t kBatch = 16;
  Cq& cq = of(ibv);
  if (!cq.device->alive()) return -EIO;
  alignas(transport::Completion) std::byte storage[kBatch * sizeof(transport::Completion)];
  auto* const batch = reinterpret_cast<transport::Completion*>(storage);  // not cleared: poll fills
  int polled = 0;
  bool progressed = false;
  while (polled < count) {
    const size_t wanted = std::min(kBatch, static_cast<size_t>(count - polled));
    const size_t got = poll_some(cq, {batch, wanted});
    for (size_t i = 0; i < got; ++i) to_verbs(batch[i], completions[polled++]);
    if (got == wanted) continue;
    if (polled > 0 || progressed) break;
    progressed = true;
    cq.device->progress();
  }
  return polled;
}

int req_notify_cq(ibv_cq* ibv, int solicited_only) {
  Cq& cq = of(ibv);
  if (!cq.device->alive()) return refuse(forked());
  {
    const std::lock_guard lock(cq.lock);
    cq.engine->arm(solicited_only != 0);
  }
  cq.device->expect_sleep();
  return 0;
}

void cq_event(ibv_cq* ibv) {
  Cq& cq = of(ibv);
  if (cq.channel != nullptr && cq.device->alive()) {
    cq.channel->events->on_read(cq.completion_events);
  }
}

}  // namespace uroce::provider
