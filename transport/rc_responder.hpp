// The responder half of a reliable connection: executes requests in PSN order and answers them
// (IBTA 9.7.4, 9.7.5).
#pragma once

#include <cstdint>

#include "transport/engine.hpp"
#include "transport/rc_completion.hpp"
#include "transport/syndrome.hpp"

namespace uroce::transport {

class RcResponder {
 public:
  RcResponder(Engine& engine, RcQueuePair& qp) : engine_(engine), qp_(qp), state_(qp.responder) {}

  void on_request(const PacketView& packet);
  // Responses to READs and ATOMICs in PSN order, then the acknowledgement that is owed.
  Turn poll_transmit(const TurnShare& share);

 private:
  // The receive WQE that a failing request takes along.
  enum class Tied : bool { kNo, kYes };

  void on_gap();
  void on_send(const PacketView& packet);
  void on_write(const PacketView& packet);
  bool begin_write(const PacketView& packet);
  void on_read(const PacketView& packet);
  void on_atomic(const PacketView& packet);
  void execute_atomic(const PacketView& packet, FetchResource& resource, std::byte* word);

  void on_duplicate(const PacketView& packet);
  void on_duplicate_read(const PacketView& packet);
  void on_duplicate_atomic(const PacketView& packet);
  FetchResource* resource_of(Psn psn);

  bool follows(const OpcodeInfo& info, InboundMessage kind) const;
  bool length_fits(const PacketView& packet) const;
  bool receive_available() const;
  FetchResource* free_resource();
  void answer(FetchResource& resource);
  void accept(uint32_t packets, bool acknowledge);
  void owe(Reply reply);
  void refuse(NakCode code, CompletionStatus status = CompletionStatus::kRemoteInvalidRequestError,
              Tied tied = Tied::kNo);

  FetchResource* oldest_pending();
  bool send_response(TransmitSink& sink, FetchResource& resource);
  bool send_read_response(TransmitSink& sink, FetchResource& resource);
  bool send_atomic_response(TransmitSink& sink, FetchResource& resource);
  bool send_reply(TransmitSink& sink);
  void send(TransmitSink& sink, uint32_t payload);
  void finish(FetchResource& resource);
  void revoke(FetchResource& resource);

  PdId pd() const { return qp_.init_attributes().pd; }

  Engine& engine_;
  RcQueuePair& qp_;
  ResponderState& state_;
};

}  // namespace uroce::transport
