// The requester half of a reliable connection: turns WQEs into request packets, and repeats them.
#pragma once

#include <cstdint>

#include "transport/engine.hpp"

namespace uroce::transport {

// The bound of packets in flight per queue pair: it starts generous, halves at a loss and grows by
// one packet per window acknowledged. Wires that drop under overload need it (go-back-N collapses
// otherwise); READ responses count as well.
inline constexpr uint16_t kInitialWindow = 256;  // packets
inline constexpr uint16_t kMaximumWindow = 512;
inline constexpr uint16_t kMinimumWindow = 8;
// At most so many packets of long messages leave without a request to acknowledge.
inline constexpr uint16_t kMaximumAskInterval = 64;
// How long packets for which no acknowledgement was asked wait for one to come by itself before the
// last is repeated with AckReq. An unsignalled tail costs nothing if other traffic follows.
inline constexpr int64_t kProbeDelayNs = 500'000;

// A view of one queue pair at one time; costs nothing to make.
class RcRequester {
 public:
  RcRequester(Engine& engine, RcQueuePair& qp, Instant now)
      : engine_(engine), qp_(qp), state_(qp.requester), now_(now) {}

  Turn poll_transmit(const TurnShare& share);
  // The queue pair's timer expired.
  void on_timeout();

  // Called by the completer after una moved by `packets` > 0.
  void on_progress(uint32_t packets);
  // A sequence NAK or an implied one: go back to una at once, if that has not been tried yet;
  // otherwise the timer decides.
  void on_loss();
  // An RNR NAK for una: nothing leaves for that long.
  void on_receiver_not_ready(int64_t wait_ns);
  // True from an RNR NAK until the next packet leaves.
  bool resting_after_rnr() const {
    return state_.wait == RequesterWait::kRnr ||
           (state_.wait == RequesterWait::kNothing && state_.una != state_.sent_end &&
            state_.next_psn == state_.una);
  }
  bool rnr_wait_over() const {
    return state_.wait != RequesterWait::kRnr || state_.deadline <= now_;
  }
  // Reports SQD's end once everything started is acknowledged.
  void check_drained();
  // True if a turn could have something to send.
  bool has_work() const;

 private:
  enum class Step : uint8_t { kSent, kBlocked, kParked };

  SendWqe* next_wqe();
  CompletionStatus check_start(const SendWqe& wqe) const;
  Step send_data(TransmitSink& sink, SendWqe& wqe);
  Step send_fetch(TransmitSink& sink, const SendWqe& wqe);
  bool gather_payload(const SendWqe& wqe, uint32_t offset, uint32_t length);
  bool open_fetch(const SendWqe& wqe, uint32_t packets_left);
  bool wants_ack(const SendWqe& wqe, bool ends_message) const;
  void count_sent(uint32_t payload);
  void note_asked(Psn psn);
  void note_unasked();
  void wait_for(RequesterWait wait, Instant deadline);
  Step refuse_memory();
  void probe();
  void go_back();
  void seek(Psn psn);

  uint32_t packets_of(const SendWqe& wqe) const { return qp_.connection.packets_of(wqe.length); }
  uint32_t in_flight() const { return (state_.next_psn - state_.una) & Psn::kMask; }
  SgeList list_of(const SendWqe& wqe) const {
    return {engine_.regions, qp_.init_attributes().pd, wqe.sges()};
  }

  Engine& engine_;
  RcQueuePair& qp_;
  RequesterState& state_;
  Instant now_;
};

// Packets from `first` to `psn`, within one message.
constexpr uint32_t packets_between(Psn first, Psn psn) {
  return (psn.value() - first.value()) & Psn::kMask;
}

}  // namespace uroce::transport
