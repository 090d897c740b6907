// Queue pairs: creation, state, destruction.
#include <errno.h>
#include <pthread.h>

#include "provider/acknowledge.hpp"
#include "provider/convert.hpp"
#include "provider/refusal.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {
namespace {

// Extended attributes that say no more than ibv_create_qp does.
constexpr uint32_t kPlainExtendedAttributes = IBV_QP_INIT_ATTR_PD;

Status check_creation(const Context& context, const ibv_pd* pd,
                      const ibv_qp_init_attr& attributes) {
  if (attributes.qp_type != IBV_QPT_RC) {
    return because(EOPNOTSUPP, "create_qp: qp_type {}; this version serves IBV_QPT_RC only",
                   static_cast<int>(attributes.qp_type));
  }
  if (attributes.srq != nullptr) {
    return because(EOPNOTSUPP, "create_qp: shared receive queues are not supported");
  }
  if (!context.pds.contains(pd)) {
    return because(EINVAL, "create_qp: the protection domain is not one of this context");
  }
  for (const ibv_cq* cq : {attributes.send_cq, attributes.recv_cq}) {
    if (cq == nullptr) return because(EINVAL, "create_qp: send_cq and recv_cq are both needed");
    if (!context.cqs.contains(cq)) {
      return because(EINVAL, "create_qp: a completion queue is not one of this context");
    }
  }
  return Done{};
}

// What libibverbs' own ibv_cmd_create_qp sets up in the application's structure.
void fill(ibv_qp& out, const ibv_qp_init_attr& attributes, ibv_pd* pd, Qpn qpn) {
  out.context = pd->context;
  out.qp_context = attributes.qp_context;
  out.pd = pd;
  out.send_cq = attributes.send_cq;
  out.recv_cq = attributes.recv_cq;
  out.handle = qpn.value;
  out.qp_num = qpn.value;
  out.state = IBV_QPS_RESET;
  out.qp_type = attributes.qp_type;
  pthread_mutex_init(&out.mutex, nullptr);
  pthread_cond_init(&out.cond, nullptr);
}

ibv_qp_init_attr initial_attributes(const Qp& qp, const transport::QpCapabilities& granted) {
  const ibv_qp& ibv = qp.verbs.qp;
  ibv_qp_init_attr out{};
  out.qp_context = ibv.qp_context;
  out.send_cq = ibv.send_cq;
  out.recv_cq = ibv.recv_cq;
  out.srq = ibv.srq;
  out.cap = to_verbs(granted);
  out.qp_type = ibv.qp_type;
  out.sq_sig_all = qp.engine->init_attributes().signal_all;
  return out;
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* asked) {
  Context& context = of(pd->context);
  if (!context.device->alive()) return refuse_object(forked());
  const auto allowed = check_creation(context, pd, *asked);
  if (!allowed) return refuse_object(allowed.refusal());

  auto qp = std::make_unique<Qp>();
  qp->context = &context;
  qp->device = context.device.get();
  transport::QpInitAttributes attributes;
  attributes.type = static_cast<transport::QpType>(asked->qp_type);
  attributes.pd = of(pd).id;
  attributes.send_cq = of(asked->send_cq).engine;
  attributes.recv_cq = of(asked->recv_cq).engine;
  attributes.capabilities = capabilities_from_verbs(asked->cap);
  attributes.signal_all = asked->sq_sig_all != 0;
  attributes.owner = qp.get();
  const auto engine = context.device->create_qp(attributes);
  if (!engine) return refuse_object(engine.refusal());
  qp->engine = engine.value();
  asked->cap = to_verbs(qp->engine->init_attributes().capabilities);
  ibv_qp* const out = &qp->verbs.qp;
  fill(*out, *asked, pd, qp->engine->qpn());
  context.qps.add(std::move(qp));
  return out;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  const uint32_t surplus = attributes->comp_mask & ~kPlainExtendedAttributes;
  if (surplus == IBV_QP_INIT_ATTR_CREATE_FLAGS && attributes->create_flags == 0) {
    attributes->comp_mask &= ~surplus;
  } else if (surplus != 0) {
    return refuse_object(
        because(EOPNOTSUPP, "create_qp_ex: comp_mask bits {:#x} are not supported", surplus));
  }
  if (attributes->comp_mask != IBV_QP_INIT_ATTR_PD) {
    return refuse_object({EINVAL, "create_qp_ex: IBV_QP_INIT_ATTR_PD is needed"});
  }
  if (!of(context).pds.contains(attributes->pd)) {
    return refuse_object({EINVAL, "create_qp_ex: the domain is not one of this context"});
  }
  // The extended structure begins with the plain one.
  return create_qp(attributes->pd, reinterpret_cast<ibv_qp_init_attr*>(attributes));
}

int modify_qp(ibv_qp* ibv, ibv_qp_attr* in, int mask) {
  Context& context = of(ibv->context);
  if (!context.device->alive()) return refuse(forked());
  if (!context.qps.contains(ibv)) return refuse({EINVAL, "modify_qp: no such queue pair"});
  const auto given = static_cast<transport::QpAttributeMask>(mask);
  const auto attributes = qp_attributes_from_verbs(*in, given, context.device->description());
  if (!attributes) return refuse(attributes.refusal());
  const auto done = context.device->modify_qp(*of(ibv).engine, attributes.value(), given);
  return done ? 0 : refuse(done.refusal());
}

int query_qp(ibv_qp* ibv, ibv_qp_attr* out, int, ibv_qp_init_attr* initial) {
  Context& context = of(ibv->context);
  if (!context.device->alive()) return refuse(forked());
  if (!context.qps.contains(ibv)) return refuse({EINVAL, "query_qp: no such queue pair"});
  const Qp& qp = of(ibv);
  const auto attributes = context.device->query_qp(*qp.engine);
  *out = to_verbs(attributes);
  if (initial != nullptr) *initial = initial_attributes(qp, attributes.capabilities);
  return 0;
}

int destroy_qp(ibv_qp* ibv) {
  Context& context = of(ibv->context);
  if (!context.device->alive()) return refuse(forked());
  if (!context.qps.contains(ibv)) return refuse({EINVAL, "destroy_qp: no such queue pair"});
  Qp& qp = of(ibv);
  const auto done = context.device->destroy_qp(*qp.engine);
  if (!done) return refuse(done.refusal());
  wait_acknowledged(ibv->mutex, ibv->cond,
                    {{&ibv->events_completed, context.async_pipe->forget(qp.async_events)}});
  context.qps.remove(ibv);
  return 0;
}

}  // namespace uroce::provider
