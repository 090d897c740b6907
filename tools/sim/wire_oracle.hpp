// Judges every packet that an Hca sends by what the model says must be on the wire.
#pragma once

#include <cstdint>
#include <string_view>

#include "tools/sim/model.hpp"
#include "tools/sim/verdict.hpp"
#include "transport/packet.hpp"

namespace uroce::sim {

class WireOracle {
 public:
  explicit WireOracle(Verdict& verdict) : verdict_(verdict) {}

  // `from` sends the packet.
  void on_transmit(Endpoint& from, const transport::PacketView& packet, Instant now);
  // The packet reaches `to`, which is connected.
  void on_arrival(Endpoint& to, const transport::PacketView& packet, Instant now);

 private:
  void judge_request(Endpoint& from, const transport::PacketView& packet, Instant now);
  void judge_order(Endpoint& from, const transport::PacketView& packet, const Operation& operation,
                   uint32_t distance, Instant now);
  void judge_content(const Endpoint& from, const transport::PacketView& packet,
                     const Operation& operation, uint32_t distance);
  void judge_start(const Endpoint& from, const transport::PacketView& packet,
                   const Operation& operation, uint64_t done);
  void judge_response(Endpoint& from, const transport::PacketView& packet);
  void judge_acknowledge(Endpoint& from, const transport::PacketView& packet, int64_t distance);
  void judge_read_response(Endpoint& from, const transport::PacketView& packet,
                           const Operation& operation, uint32_t distance);
  void judge_msn(const Endpoint& from, const transport::PacketView& packet, int64_t executed);
  void note_request(Endpoint& to, const transport::PacketView& packet);
  void note_response(Endpoint& to, const transport::PacketView& packet, Instant now);
  void blame(const Endpoint& end, const transport::PacketView& packet, std::string_view what);

  Verdict& verdict_;
};

// The requester heard nothing new though it sent its oldest packet as often as it may.
bool retries_exhausted(const Endpoint& end);
// The responder said RNR more often in a row than the requester puts up with.
bool rnr_retries_exhausted(const Endpoint& end);
// IBTA table 45.
int64_t rnr_timer_ns(uint8_t code);
int64_t ack_timeout_ns(uint8_t code);
// PSNs that a request takes: as many as there are responses for a READ, else one.
uint32_t span_of(const transport::PacketView& request, uint32_t mtu);

}  // namespace uroce::sim
