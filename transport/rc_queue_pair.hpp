// A reliable connected queue pair: the state of its requester, completer and responder, kept apart
// by who touches it per packet.
#pragma once

#include <array>
#include <cstdint>

#include "transport/queue_pair.hpp"
#include "transport/scatter_gather.hpp"
#include "transport/service_queue.hpp"
#include "transport/timer_wheel.hpp"

namespace uroce::transport {

// READs and ATOMICs in flight per direction: HcaLimits::max_rd_atomic may not exceed it.
inline constexpr uint32_t kMaxFetches = 16;

// What modify_qp set, as the data path wants it.
struct RcConnection {
  const Path* path = nullptr;
  Qpn remote_qpn;
  uint32_t mtu = 0;  // bytes
  uint8_t mtu_shift = 0;
  uint8_t max_rd_atomic = 0;
  uint8_t max_dest_rd_atomic = 0;
  uint8_t min_rnr_timer = 0;  // code
  uint8_t retry_count = 0;
  uint8_t rnr_retry = 0;
  AccessFlags access = 0;
  int64_t ack_timeout_ns = 0;  // 0: never
  Gid peer_gid;

  // PSNs that a message, or the response to a READ, of that many bytes takes.
  uint32_t packets_of(uint32_t bytes) const {
    return bytes == 0 ? 1 : ((bytes - 1) >> mtu_shift) + 1;
  }
};

// What the requester waits for.
enum class RequesterWait : uint8_t {
  kNothing,
  kAcknowledge,  // an acknowledgement that was asked for: retransmission at the deadline
  kRnr,          // the peer's receive queue: no packet leaves before the deadline
  kProbe,        // nobody asked for an acknowledgement yet: the last packet is repeated with AckReq
};

// Requester and completer. WQEs [una_index, started) have PSNs [una, …); [una_index, posted) are
// incomplete.
struct RequesterState {
  Psn next_psn;  // of the next packet; behind sent_end while retransmitting
  Psn sent_end;  // one past the highest PSN that was ever used
  Psn una;       // oldest unacknowledged PSN
  Psn asked;     // highest PSN that went out with a request to acknowledge, valid if ask_open
  uint32_t send_index = 0;  // WQE that next_psn belongs to
  uint32_t started = 0;     // WQEs below it have a first_psn
  uint32_t una_index = 0;   // WQE that una belongs to
  SgeCursor gather;         // next_psn's place in its WQE's list
  SgeCursor scatter;        // una's place in its READ's list
  uint16_t window = 0;      // bound of next_psn - una, packets
  uint16_t credit = 0;      // packets acknowledged since the window last grew
  uint16_t unasked = 0;     // packets since the last AckReq
  RequesterWait wait = RequesterWait::kNothing;
  bool ask_open = false;  // an acknowledgement up to `asked` is due
  bool retried = false;   // una has had its immediate retry (PROTOCOL.md 11)
  uint8_t retries_left = 0;
  uint8_t rnr_retries_left = 0;
  bool drain_reported = false;  // kSqDrained has been raised for this stay in SQD
  // READ requests (or parts of READs) and ATOMICs in flight: a ring of their end PSNs (one past).
  // [fetch_head, fetch_issued) are out; [fetch_issued, fetch_tail) are to be issued again, each up
  // to the same end as before, since a responder repeats only what it was asked before.
  uint8_t fetch_head = 0;
  uint8_t fetch_issued = 0;
  uint8_t fetch_tail = 0;
  Instant deadline = Instant::never();
  std::array<Psn, kMaxFetches> fetch_ends;
};

// A READ or ATOMIC that the responder executed, kept for its duplicates (IBTA 9.4.5.1, 9.7.5.1.4).
struct FetchResource {
  Psn first_psn;
  Psn end_psn;  // one past
  bool atomic = false;
  bool pending = false;   // a response is to be sent: from `cursor_psn` on
  bool begun = false;     // the response's first packet has been sent
  bool answered = false;  // all of the response has been sent once
  uint32_t msn = 0;
  // READ: the range as granted. ATOMIC: `address` is the original value.
  uint64_t address = 0;
  Rkey rkey;
  uint32_t length = 0;  // bytes
  // What is still to be sent.
  Psn cursor_psn;
  uint32_t cursor_remaining = 0;  // bytes
  uint64_t cursor_address = 0;
};

enum class Reply : uint8_t { kNone, kAck, kSequenceNak, kRnrNak, kFatalNak };

// The message whose packets are arriving.
enum class InboundMessage : uint8_t { kNone, kSend, kWrite };

struct ResponderState {
  Psn expected_psn;
  uint32_t msn = 0;  // 24 bits
  InboundMessage message = InboundMessage::kNone;
  Reply reply = Reply::kNone;  // owed, after all pending responses
  uint8_t nak_syndrome = 0;    // of a fatal NAK
  Psn nak_psn;                 // of a fatal NAK
  bool silent = false;         // a NAK for expected_psn has been given: later packets are dropped
  bool established = false;    // a packet has come in (kCommunicationEstablished)
  uint8_t pending = 0;         // resources with a response to send
  uint8_t resource_count = 0;  // used, up to max_dest_rd_atomic
  uint8_t resource_next = 0;   // where the next one goes: the oldest, when all are used
  uint32_t receive_index = 0;  // next receive WQE, or the one that the SEND in progress fills
  uint32_t received = 0;       // bytes of the message in progress
  SgeCursor scatter;           // in the receive WQE
  // WRITE in progress.
  uint64_t write_address = 0;
  Rkey write_rkey;
  uint32_t write_length = 0;  // bytes, of the RETH
  std::array<FetchResource, kMaxFetches> resources;
};

class RcQueuePair;

struct QpTimer : TimerNode {
  explicit QpTimer(RcQueuePair& owner) : qp(owner) {}
  RcQueuePair& qp;
};

class RcQueuePair final : public QueuePair {
 public:
  RcQueuePair(Qpn qpn, const QpInitAttributes& granted) : QueuePair(qpn, granted) {}

  SendQueue& send_queue() { return send_queue_; }
  ReceiveQueue& receive_queue() { return receive_queue_; }
  void set_state(QpState state) { state_.store(state, std::memory_order_seq_cst); }

  RcConnection connection;
  RequesterState requester;
  ServiceHook work_hook;   // in Engine::work: requests or READ responses to send
  ServiceHook reply_hook;  // in Engine::replies: an acknowledgement is owed
  bool fatal = false;      // a completion was lost (CQ overflow): to ERROR before anything else
  ResponderState responder;
  QpTimer timer{*this};     // at requester.deadline, or earlier
  QpAttributes attributes;  // as modified, for query and the next modify
};
static_assert(sizeof(RcQueuePair) <= 3072, "an idle queue pair stays small beside its rings");

}  // namespace uroce::transport
