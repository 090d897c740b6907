// Applies attributes and state changes.
#include "transport/rc_modify.hpp"

#include <bit>

#include "transport/rc_completion.hpp"
#include "transport/rc_requester.hpp"
#include "transport/syndrome.hpp"

namespace uroce::transport {

namespace {

// Copies the members that the mask names.
void merge(QpAttributes& into, const QpAttributes& from, QpAttributeMask mask) {
  if (mask & kQpAccessFlags) into.access = from.access;
  if (mask & kQpPkeyIndex) into.pkey_index = from.pkey_index;
  if (mask & kQpPort) into.port = from.port;
  if (mask & kQpAv) into.address = from.address;
  if (mask & kQpPathMtu) into.path_mtu = from.path_mtu;
  if (mask & kQpDestQpn) into.destination_qpn = from.destination_qpn;
  if (mask & kQpRqPsn) into.rq_psn = from.rq_psn;
  if (mask & kQpSqPsn) into.sq_psn = from.sq_psn;
  if (mask & kQpTimeout) into.ack_timeout = from.ack_timeout;
  if (mask & kQpRetryCnt) into.retry_count = from.retry_count;
  if (mask & kQpRnrRetry) into.rnr_retry = from.rnr_retry;
  if (mask & kQpMinRnrTimer) into.min_rnr_timer = from.min_rnr_timer;
  if (mask & kQpMaxRdAtomic) into.max_rd_atomic = from.max_rd_atomic;
  if (mask & kQpMaxDestRdAtomic) into.max_dest_rd_atomic = from.max_dest_rd_atomic;
  if (mask & kQpEnSqdAsyncNotify) into.sqd_async_notify = from.sqd_async_notify;
}

void connect(RcConnection& connection, const QpAttributes& attributes) {
  connection.path = attributes.address.path;
  connection.peer_gid = attributes.address.destination_gid;
  connection.remote_qpn = attributes.destination_qpn;
  connection.mtu = bytes_of(attributes.path_mtu);
  connection.mtu_shift = static_cast<uint8_t>(std::countr_zero(connection.mtu));
  connection.access = attributes.access;
  connection.max_rd_atomic = attributes.max_rd_atomic;
  connection.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  connection.min_rnr_timer = attributes.min_rnr_timer;
  connection.retry_count = attributes.retry_count;
  connection.rnr_retry = attributes.rnr_retry;
  connection.ack_timeout_ns = ack_timeout_ns(attributes.ack_timeout);
}

void start_requester(RequesterState& requester, Psn first) {
  requester.next_psn = requester.sent_end = requester.una = first;
  requester.window = kInitialWindow;
}

// As created: nothing posted, nothing known of a peer.
void reset(Engine& engine, RcQueuePair& qp) {
  qp.set_state(QpState::kReset);
  quiesce(engine, qp);
  qp.send_queue().ring.clear();
  qp.receive_queue().ring.clear();
  qp.connection = {};
  qp.requester = {};
  qp.responder = {};
  qp.fatal = false;
  qp.attributes = {};
}

void forget_completions(Engine& engine, RcQueuePair& qp, CompletionQueue& cq) {
  engine.events.lock_consumer(cq);
  cq.remove_all_of(qp.qpn());
  engine.events.unlock_consumer(cq);
}

}  // namespace

void apply_modify(Engine& engine, RcQueuePair& qp, const QpAttributes& attributes,
                  QpAttributeMask mask) {
  const QpState before = qp.state();
  const QpState after = (mask & kQpState) != 0 ? attributes.state : before;
  if (after == QpState::kReset) return reset(engine, qp);
  const uint8_t resources = qp.connection.max_dest_rd_atomic;
  merge(qp.attributes, attributes, mask);
  connect(qp.connection, qp.attributes);
  if (after == QpState::kError) return enter_error(engine, qp);

  ResponderState& responder = qp.responder;
  if (resources != qp.connection.max_dest_rd_atomic) {
    responder.resource_count = responder.resource_next = responder.pending = 0;
    for (FetchResource& resource : responder.resources) resource.pending = false;
  }
  if (before == QpState::kInit && after == QpState::kRtr) {
    responder.expected_psn = qp.attributes.rq_psn;
  }
  if (before == QpState::kRtr && after == QpState::kRts) {
    start_requester(qp.requester, qp.attributes.sq_psn);
  }
  qp.requester.retries_left = qp.connection.retry_count;
  qp.requester.rnr_retries_left = qp.connection.rnr_retry;
  if (after != before) qp.requester.drain_reported = false;
  qp.set_state(after);
  if (after == QpState::kSqd) RcRequester(engine, qp, {}).check_drained();
  if (after == QpState::kRts) engine.work.push(qp);
}

void quiesce(Engine& engine, RcQueuePair& qp) {
  engine.timers.cancel(qp.timer);
  engine.work.remove(qp);
  engine.parked.remove(qp);
  engine.replies.remove(qp);
  forget_completions(engine, qp, *qp.init_attributes().send_cq);
  if (qp.init_attributes().recv_cq != qp.init_attributes().send_cq) {
    forget_completions(engine, qp, *qp.init_attributes().recv_cq);
  }
}

}  // namespace uroce::transport
