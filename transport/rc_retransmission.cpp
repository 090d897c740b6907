// The requester's waits: acknowledgement timer, RNR timer, probe; and going back.
#include <algorithm>

#include "transport/rc_completion.hpp"
#include "transport/rc_requester.hpp"

namespace uroce::transport {

void RcRequester::note_asked(Psn psn) {
  state_.unasked = 0;
  state_.asked = psn;
  state_.ask_open = true;
  if (state_.wait != RequesterWait::kAcknowledge) {
    wait_for(RequesterWait::kAcknowledge, now_ + qp_.connection.ack_timeout_ns);
  }
}

void RcRequester::note_unasked() {
  ++state_.unasked;
  if (state_.wait == RequesterWait::kNothing || state_.wait == RequesterWait::kProbe) {
    wait_for(RequesterWait::kProbe, now_ + kProbeDelayNs);
  }
}

// Sets what is waited for. The timer is moved only when it would come too late: one that comes
// early finds a later deadline and goes on, which is cheaper than a move per packet.
void RcRequester::wait_for(RequesterWait wait, Instant deadline) {
  state_.wait = wait;
  state_.deadline = deadline;
  // An ACK timeout of 0 waits for ever (IBTA 9.7.6.1.3).
  const bool never = qp_.connection.ack_timeout_ns == 0 && wait != RequesterWait::kRnr;
  if (wait == RequesterWait::kNothing || never) {
    state_.deadline = Instant::never();
    return;
  }
  if (!qp_.timer.armed() || deadline < qp_.timer.deadline()) {
    engine_.timers.arm(qp_.timer, deadline);
  }
}

void RcRequester::on_timeout() {
  if (state_.deadline == Instant::never()) return;
  if (state_.deadline > now_) {
    engine_.timers.arm(qp_.timer, state_.deadline);
    return;
  }
  switch (state_.wait) {
    case RequesterWait::kNothing:
      return;
    case RequesterWait::kRnr:
      state_.wait = RequesterWait::kNothing;
      engine_.work.push(qp_);
      return;
    case RequesterWait::kProbe:
      probe();
      return;
    case RequesterWait::kAcknowledge:
      break;
  }
  ++engine_.counters.local_ack_timeout_err;
  if (state_.retries_left == 0) {
    fail_requester(engine_, qp_, CompletionStatus::kRetryExceededError);
    return;
  }
  --state_.retries_left;
  go_back();
}

// Repeats the packet before next_psn, asking for an acknowledgement.
void RcRequester::probe() {
  state_.wait = RequesterWait::kNothing;
  state_.deadline = Instant::never();
  if (in_flight() == 0) return;
  seek(state_.next_psn + Psn::kMask);
  const SendWqe& wqe = qp_.send_queue().at(state_.send_index);
  // The consumer may have taken its memory back, knowing by other means that the data arrived:
  // then there is nothing to repeat, and nobody who waits.
  if (!wqe.has(kInline) && check_sges(list_of(wqe), 0) != MemoryRefusal::kNone) {
    seek(state_.next_psn + 1);
    return;
  }
  state_.unasked = kMaximumAskInterval;
  wait_for(RequesterWait::kAcknowledge, now_ + qp_.connection.ack_timeout_ns);
  engine_.work.push(qp_);
}

void RcRequester::on_loss() {
  if (state_.retried || state_.una == state_.sent_end) return;
  if (state_.wait == RequesterWait::kRnr) return;  // goes back anyway, when that is over
  state_.retried = true;
  if (state_.retries_left == 0) {
    fail_requester(engine_, qp_, CompletionStatus::kRetryExceededError);
    return;
  }
  --state_.retries_left;
  go_back();
}

// Everything from una on is sent again, as after a loss.
void RcRequester::go_back() {
  state_.window = std::max<uint16_t>(state_.window / 2, kMinimumWindow);
  state_.credit = 0;
  seek(state_.una);
  state_.unasked = 0;
  // The last packet of the repetition will ask; the timer runs from now, in case it cannot leave.
  state_.asked = state_.sent_end + Psn::kMask;
  state_.ask_open = true;
  wait_for(RequesterWait::kAcknowledge, now_ + qp_.connection.ack_timeout_ns);
  engine_.work.push(qp_);
}

void RcRequester::on_receiver_not_ready(int64_t wait_ns) {
  seek(state_.una);
  state_.unasked = 0;
  state_.ask_open = false;
  wait_for(RequesterWait::kRnr, now_ + wait_ns);
}

void RcRequester::on_progress(uint32_t packets) {
  state_.retried = false;
  state_.retries_left = qp_.connection.retry_count;
  state_.rnr_retries_left = qp_.connection.rnr_retry;
  state_.credit = static_cast<uint16_t>(state_.credit + std::min<uint32_t>(packets, state_.window));
  if (state_.credit >= state_.window) {
    state_.credit = static_cast<uint16_t>(state_.credit - state_.window);
    if (state_.window < kMaximumWindow) ++state_.window;
  }
  // Acknowledgements of an earlier transmission may overtake a repetition.
  if (state_.next_psn - state_.una < 0) seek(state_.una);
  if (state_.ask_open && state_.asked - state_.una < 0) state_.ask_open = false;
  if (state_.una == state_.sent_end) {
    state_.ask_open = false;
    wait_for(RequesterWait::kNothing, Instant::never());
    check_drained();
  } else if (state_.ask_open || state_.next_psn != state_.sent_end) {
    wait_for(RequesterWait::kAcknowledge, now_ + qp_.connection.ack_timeout_ns);
  } else {
    wait_for(RequesterWait::kProbe, now_ + kProbeDelayNs);
  }
  if (has_work()) engine_.work.push(qp_);
}

void RcRequester::check_drained() {
  if (qp_.state() != QpState::kSqd || state_.drain_reported) return;
  if (state_.una_index != state_.started) return;
  state_.drain_reported = true;
  if (qp_.attributes.sqd_async_notify) {
    engine_.events.on_async_event(AsyncEventType::kSqDrained, qp_.owner());
  }
}

// Puts next_psn, its WQE and its place in the list at `psn`, which lies in [una, sent_end].
void RcRequester::seek(Psn psn) {
  SendQueue& queue = qp_.send_queue();
  uint32_t index = state_.una_index;
  while (index != state_.started &&
         packets_between(queue.at(index).first_psn, psn) >= packets_of(queue.at(index))) {
    ++index;
  }
  state_.next_psn = psn;
  state_.send_index = index;
  state_.gather = {};
  if (index != state_.started && !queue.at(index).has(kInline)) {
    const SendWqe& wqe = queue.at(index);
    const uint32_t packets = packets_between(wqe.first_psn, psn);
    state_.gather = position_at(wqe.sges(), packets << qp_.connection.mtu_shift);
  }
  state_.fetch_issued = state_.fetch_head;
  while (state_.fetch_issued != state_.fetch_tail &&
         state_.fetch_ends[state_.fetch_issued % kMaxFetches] - psn <= 0) {
    ++state_.fetch_issued;
  }
}

}  // namespace uroce::transport
