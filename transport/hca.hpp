// The host channel adapter: all queue pairs, memory regions and timers of one lane, without IO.
//
// The contract (DESIGN 2): inputs are calls with the time as a parameter; outputs are packets
// pulled by poll_transmit, the next deadline, completions and events pushed into queues given at
// construction. No clock, randomness, thread, lock, system call, and after set-up no allocation per
// packet. All calls are made under the lane's lock, but for posting and polling (see QueuePair,
// CompletionQueue).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "transport/completion_queue.hpp"
#include "transport/drop_reason.hpp"
#include "transport/packet.hpp"
#include "transport/queue_pair.hpp"
#include "transport/result.hpp"
#include "transport/verbs.hpp"

namespace uroce::transport {

// What is advertised is what is enforced.
struct HcaLimits {
  uint32_t max_qp = 16384;
  uint32_t max_qp_wr = 16384;
  uint32_t max_sge = 32;
  uint32_t max_inline_data = 512;  // bytes
  uint32_t max_cq = 16384;
  uint32_t max_cqe = 131072;
  uint32_t max_mr = 1u << 20;
  uint32_t max_pd = 16384;
  uint64_t max_mr_size = 1ull << 47;
  uint32_t max_rd_atomic = 16;
  uint32_t max_message_bytes = 1u << 31;
};

struct HcaConfig {
  uint8_t slot = 1;   // top byte of every QPN
  uint64_t seed = 0;  // starts of QPN and key allocation: no randomness of its own
  HcaLimits limits;
  Mtu active_mtu = Mtu::k4096;  // the port's; a QP's path MTU may not exceed it
};

// Named counters of the port, 64 bits each, in the order of kHcaCounterNames. Names are mlx5's or
// rxe's where the meaning is the same.
struct HcaCounters {
  uint64_t rx_packets = 0, tx_packets = 0;  // transport packets
  uint64_t rx_bytes = 0, tx_bytes = 0;      // payload bytes
  uint64_t rx_write_requests = 0, rx_read_requests = 0, rx_atomic_requests = 0;
  uint64_t duplicate_request = 0, out_of_sequence = 0;
  uint64_t packet_seq_err = 0;  // sequence NAKs received
  uint64_t implied_nak_seq_err = 0;
  uint64_t rnr_nak_retry_err = 0;  // RNR NAKs received
  uint64_t local_ack_timeout_err = 0;
  uint64_t tx_retransmitted_packets = 0;
  uint64_t req_remote_access_errors = 0, req_remote_invalid_request = 0;
  uint64_t resp_remote_access_errors = 0;
  uint64_t tx_acks = 0, tx_naks = 0, tx_rnr_naks = 0;
  std::array<uint64_t, kDropReasonCount> drops{};
};

class Hca {
 public:
  Hca(const HcaConfig& config, EventSink& events);
  ~Hca();

  const HcaLimits& limits() const;

  // Protection domains. destroy_pd: EBUSY while regions or QPs use it.
  Result<PdId> create_pd();
  Status destroy_pd(PdId pd);

  // Memory. Refusals: EINVAL (access flags, overflow), ENOMEM (table full). The key is L_Key and
  // R_Key.
  Result<uint32_t> register_region(const RegionAttributes& attributes);
  Status deregister_region(Lkey key);

  // Completion queues: EINVAL over the limits, ENOMEM; destroy: EBUSY while QPs use it.
  Result<CompletionQueue*> create_cq(uint32_t entries, void* owner);
  Status destroy_cq(CompletionQueue& cq);

  // Queue pairs. The pointer is valid until destroy_qp. modify checks the state table; a refused
  // modify changes nothing. Refusal texts name the missing or surplus attribute ("modify_qp
  // INIT->RTR: missing IBV_QP_DEST_QPN"). destroy removes the QP's completions from its CQs,
  // between EventSink::lock_consumer and unlock_consumer.
  Result<QueuePair*> create_qp(const QpInitAttributes& attributes, Instant now);
  Status modify_qp(QueuePair& qp, const QpAttributes& attributes, QpAttributeMask mask,
                   Instant now);
  QpAttributes query_qp(const QueuePair& qp) const;  // every member is valid
  Status destroy_qp(QueuePair& qp, Instant now);

  // Data path.
  void activate(QueuePair& qp, Instant now);  // work was posted
  void on_packet(const PacketView& packet, const PacketOrigin& origin, Instant now);
  void count_drop(DropReason reason);  // datapath's drops share the table
  // Sends up to `budget` packets, serving queue pairs in turn; returns how many. Acknowledgements
  // of packets seen since the last call leave first.
  size_t poll_transmit(TransmitSink& sink, size_t budget, Instant now);
  // True if a call of poll_transmit could send something now (but for QPs parked by can_send).
  bool transmit_pending() const;
  bool transmit_parked() const;  // some QP was refused by can_send in the last poll_transmit
  void on_timeout(Instant now);  // serves all deadlines <= now
  Instant next_deadline() const;

  const HcaCounters& counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace uroce::transport
