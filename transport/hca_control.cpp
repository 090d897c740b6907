// The HCA's control path: domains, regions, completion queues, queue pairs.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "transport/hca.hpp"
#include "transport/hca_state.hpp"
#include "transport/qp_state.hpp"
#include "transport/rc_completion.hpp"
#include "transport/rc_modify.hpp"

namespace uroce::transport {

namespace {

RcQueuePair& rc(QueuePair& qp) {
  return static_cast<RcQueuePair&>(qp);  // the only kind that create_qp makes
}
const RcQueuePair& rc(const QueuePair& qp) {
  return static_cast<const RcQueuePair&>(qp);
}

Status check_limit(std::string_view name, uint32_t asked, uint32_t limit) {
  if (asked <= limit) return Done{};
  return Refusal{EINVAL, fmt::format("create_qp: {} is {}, the device has {}", name, asked, limit)};
}

// Rings have a power of two of slots; a queue that exists takes at least one SGE.
QpCapabilities grant(QpCapabilities asked) {
  const auto slots = [](uint32_t wrs) { return wrs == 0 ? 0 : std::bit_ceil(wrs); };
  asked.max_send_wr = slots(asked.max_send_wr);
  asked.max_recv_wr = slots(asked.max_recv_wr);
  asked.max_send_sge = std::max(asked.max_send_sge, 1u);
  asked.max_recv_sge = std::max(asked.max_recv_sge, 1u);
  return asked;
}

Status check_capabilities(const QpCapabilities& asked, const HcaLimits& limits) {
  struct Row {
    std::string_view name;
    uint32_t asked;
    uint32_t limit;
  };
  const Row rows[] = {
      {"max_send_wr", asked.max_send_wr, limits.max_qp_wr},
      {"max_recv_wr", asked.max_recv_wr, limits.max_qp_wr},
      {"max_send_sge", asked.max_send_sge, limits.max_sge},
      {"max_recv_sge", asked.max_recv_sge, limits.max_sge},
      {"max_inline_data", asked.max_inline_data, limits.max_inline_data},
  };
  for (const Row& row : rows) {
    if (Status status = check_limit(row.name, row.asked, row.limit); !status) return status;
  }
  return Done{};
}

}  // namespace

Hca::Hca(const HcaConfig& config, EventSink& events)
    : state_(std::make_unique<State>(config, events)) {}

Hca::~Hca() {
  state_->qps.each([](RcQueuePair& qp) { delete &qp; });
}

const HcaLimits& Hca::limits() const {
  return state_->engine.config.limits;
}

Result<PdId> Hca::create_pd() {
  if (state_->pd_users.size() >= limits().max_pd) {
    return Refusal{ENOMEM,
                   fmt::format("alloc_pd: all {} protection domains are in use", limits().max_pd)};
  }
  const PdId pd{state_->next_pd++};
  state_->pd_users[pd.value] = 0;
  return pd;
}

Status Hca::destroy_pd(PdId pd) {
  const auto found = state_->pd_users.find(pd.value);
  if (found == state_->pd_users.end()) {
    return Refusal{EINVAL, "dealloc_pd: no such protection domain"};
  }
  if (found->second != 0) {
    return Refusal{EBUSY, fmt::format("dealloc_pd: {} memory regions and queue pairs still use it",
                                      found->second)};
  }
  state_->pd_users.erase(found);
  return Done{};
}

Result<uint32_t> Hca::register_region(const RegionAttributes& attributes) {
  const auto users = state_->pd_users.find(attributes.pd.value);
  if (users == state_->pd_users.end()) {
    return Refusal{EINVAL, "reg_mr: no such protection domain"};
  }
  Result<uint32_t> key = state_->engine.regions.register_region(attributes);
  if (key) ++users->second;
  return key;
}

Status Hca::deregister_region(Lkey key) {
  Result<RegionAttributes> region = state_->engine.regions.deregister_region(key);
  if (!region) return region.refusal();
  --state_->pd_users[region->pd.value];
  return Done{};
}

Result<CompletionQueue*> Hca::create_cq(uint32_t entries, void* owner) {
  if (entries == 0 || entries > limits().max_cqe) {
    return Refusal{EINVAL, fmt::format("create_cq: {} entries asked for, 1 to {} allowed", entries,
                                       limits().max_cqe)};
  }
  if (state_->cqs.size() >= limits().max_cq) {
    return Refusal{ENOMEM,
                   fmt::format("create_cq: all {} completion queues are in use", limits().max_cq)};
  }
  auto cq = std::make_unique<CompletionQueue>(entries, state_->engine.events, owner);
  CompletionQueue* const pointer = cq.get();
  state_->cqs[pointer] = std::move(cq);
  return pointer;
}

Status Hca::destroy_cq(CompletionQueue& cq) {
  if (cq.users != 0) {
    return Refusal{EBUSY,
                   fmt::format("destroy_cq: {} work queues still complete here", cq.users.load())};
  }
  if (state_->cqs.erase(&cq) == 0) {
    return Refusal{EINVAL, "destroy_cq: no such completion queue"};
  }
  return Done{};
}

Result<QueuePair*> Hca::create_qp(const QpInitAttributes& attributes, Instant now) {
  if (attributes.type != QpType::kRc) {
    return Refusal{EOPNOTSUPP, "create_qp: only IBV_QPT_RC is supported"};
  }
  const auto pd = state_->pd_users.find(attributes.pd.value);
  if (pd == state_->pd_users.end()) return Refusal{EINVAL, "create_qp: no such protection domain"};
  if (attributes.send_cq == nullptr || attributes.recv_cq == nullptr) {
    return Refusal{EINVAL, "create_qp: send_cq and recv_cq are both needed"};
  }
  if (Status fits = check_capabilities(attributes.capabilities, limits()); !fits) {
    return fits.refusal();
  }
  const std::optional<Qpn> qpn =
      state_->qps.size() < limits().max_qp ? state_->qps.reserve(now) : std::nullopt;
  if (!qpn) {
    return Refusal{ENOMEM, fmt::format("create_qp: no queue pair number is free ({} in use)",
                                       state_->qps.size())};
  }
  QpInitAttributes granted = attributes;
  granted.capabilities = grant(attributes.capabilities);
  auto qp = std::unique_ptr<RcQueuePair>(new (std::nothrow) RcQueuePair(*qpn, granted));
  if (qp == nullptr || !qp->send_queue().ring.allocated() ||
      !qp->receive_queue().ring.allocated()) {
    return Refusal{ENOMEM, "create_qp: no memory for the work queues"};
  }
  state_->qps.insert(*qp);
  ++pd->second;
  ++attributes.send_cq->users;
  ++attributes.recv_cq->users;
  return qp.release();
}

Status Hca::modify_qp(QueuePair& queue_pair, const QpAttributes& attributes, QpAttributeMask mask,
                      Instant) {
  Engine& engine = state_->engine;
  RcQueuePair& qp = rc(queue_pair);
  const QpModifyLimits modify_limits{engine.config.active_mtu, limits().max_rd_atomic};
  Status status = check_modify(qp.type(), qp.state(), attributes, mask, modify_limits);
  if (!status) return status;
  apply_modify(engine, qp, attributes, mask);
  settle(engine, qp);
  return status;
}

QpAttributes Hca::query_qp(const QueuePair& queue_pair) const {
  const RcQueuePair& qp = rc(queue_pair);
  QpAttributes attributes = qp.attributes;
  attributes.state = attributes.current_state = qp.state();
  attributes.capabilities = qp.init_attributes().capabilities;
  if (qp.state() == QpState::kRts || qp.state() == QpState::kSqd) {
    attributes.sq_psn = qp.requester.next_psn;
    attributes.rq_psn = qp.responder.expected_psn;
  }
  return attributes;
}

Status Hca::destroy_qp(QueuePair& queue_pair, Instant now) {
  RcQueuePair& qp = rc(queue_pair);
  if (state_->qps.find(qp.qpn()) != &qp) return Refusal{EINVAL, "destroy_qp: no such queue pair"};
  quiesce(state_->engine, qp);
  --qp.init_attributes().send_cq->users;
  --qp.init_attributes().recv_cq->users;
  --state_->pd_users[qp.init_attributes().pd.value];
  state_->qps.remove(qp, now);
  delete &qp;
  return Done{};
}

}  // namespace uroce::transport
