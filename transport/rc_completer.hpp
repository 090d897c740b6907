// The completer: what responses do to the requester's queue (IBTA 9.7.6).
#pragma once

#include "transport/engine.hpp"
#include "transport/rc_requester.hpp"

namespace uroce::transport {

class RcCompleter {
 public:
  RcCompleter(Engine& engine, RcQueuePair& qp, Instant now)
      : engine_(engine), qp_(qp), state_(qp.requester), requester_(engine, qp, now) {}

  // An acknowledgement, a READ response or an ATOMIC acknowledgement.
  void on_response(const PacketView& packet);

 private:
  void on_acknowledge(const PacketView& packet);
  void on_ack(Psn psn);
  void on_rnr_nak(const PacketView& packet);
  void on_nak(const PacketView& packet);
  void on_read_response(const PacketView& packet);
  void on_atomic_acknowledge(const PacketView& packet);
  bool acknowledge_before(Psn end);
  SendWqe* fetch_at(Psn psn);
  void finish_fetch_packet(const SendWqe& wqe);
  void on_implied_nak();

  Engine& engine_;
  RcQueuePair& qp_;
  RequesterState& state_;
  RcRequester requester_;
};

}  // namespace uroce::transport
