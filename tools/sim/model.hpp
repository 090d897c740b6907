// The reference model: what each queue pair was asked to do and what must come of it, as plain
// values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/sim/host.hpp"
#include "tools/sim/memory.hpp"
#include "tools/sim/scenario.hpp"
#include "tools/sim/verdict.hpp"

namespace uroce::sim {

inline constexpr transport::AccessFlags kAllRights =
    transport::kLocalWrite | transport::kRemoteWrite | transport::kRemoteRead |
    transport::kRemoteAtomic;

// A buffer of the application, lent by a pool of its endpoint: one scatter/gather element.
struct Piece {
  size_t pool = 0;
  uint64_t offset = 0;  // within the host's memory
  uint32_t length = 0;
  Memory::EffectId effect = Memory::kNoEffect;  // of an incoming message or a response
};

struct Operation {
  uint64_t wr_id = 0;
  transport::SendOpcode opcode = transport::SendOpcode::kSend;
  transport::SendFlags flags = 0;
  bool signaled = false;  // by flag or by the queue pair
  uint32_t immediate = 0;
  uint32_t length = 0;             // bytes; 8 for an ATOMIC
  std::vector<Piece> pieces;       // empty once given back
  std::vector<std::byte> payload;  // of SEND and WRITE, taken at post
  uint64_t remote_offset = 0;      // within the peer's memory
  uint64_t remote_address = 0;     // as the request names it
  Rkey rkey;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  size_t word = 0;  // which shared word an ATOMIC is for
  Fault fault = Fault::kNone;
  uint32_t first_packet = 0;                    // distance of its first PSN from the flow's start
  uint32_t packets = 0;                         // PSNs that it takes
  std::optional<size_t> receive;                // which receive it consumes
  Memory::EffectId effect = Memory::kNoEffect;  // of a WRITE on the peer's memory
  std::vector<std::byte> at_its_turn;           // what a READ finds if it is served in order
  bool succeeded = false;                       // completion seen, or implied by a later one

  bool is_write() const {
    return opcode == transport::SendOpcode::kRdmaWrite ||
           opcode == transport::SendOpcode::kRdmaWriteWithImm;
  }
  bool is_send() const {
    return opcode == transport::SendOpcode::kSend || opcode == transport::SendOpcode::kSendWithImm;
  }
  bool is_read() const { return opcode == transport::SendOpcode::kRdmaRead; }
  bool is_atomic() const {
    return opcode == transport::SendOpcode::kAtomicCmpAndSwp ||
           opcode == transport::SendOpcode::kAtomicFetchAndAdd;
  }
  bool has_immediate() const {
    return opcode == transport::SendOpcode::kSendWithImm ||
           opcode == transport::SendOpcode::kRdmaWriteWithImm;
  }
  bool consumes_receive() const { return is_send() || has_immediate(); }
  uint32_t last_packet() const { return first_packet + packets - 1; }
};

struct Receive {
  uint64_t wr_id = 0;
  std::vector<Piece> pieces;
  uint32_t capacity = 0;  // bytes over all pieces
  Fault fault = Fault::kNone;
  const Operation* message = nullptr;  // the operation that consumes it, once posted
  bool completed = false;
  bool succeeded = false;
};

// One direction of a connection: the requests of one end, in order.
struct Flow {
  Psn start;
  std::deque<Operation> operations;  // addresses are stable
  std::vector<size_t> consumers;     // operations that consume a receive, in order
  uint32_t packets = 0;              // PSNs given to operations
  size_t completed = 0;              // operations whose completion was seen or implied
  size_t executed = 0;               // operations known to have been executed by the responder
  bool failed = false;               // a completion in error was seen

  // The operation to which the `distance`-th PSN belongs; null if none was posted.
  const Operation* operation_at(uint32_t distance) const;
  size_t index_of(const Operation& operation) const;
  // Packets of the operations that are completed: their PSNs must not be sent again.
  uint32_t completed_packets() const;
};

// What the oracle of the wire remembers of one end.
struct WireHistory {
  struct Sent {
    uint32_t times = 0;
    Instant last;
    bool asked = false;  // for an acknowledgement
  };
  // As requester. Distances from the flow's start.
  std::vector<Sent> sent;  // by distance; READ requests where they start
  uint32_t next_new = 0;   // first PSN never used
  // Where each message ends, exclusive: an operation, or a part of a READ that is asked for in
  // parts.
  std::vector<uint32_t> message_ends;
  uint32_t unacknowledged = 0;      // oldest PSN without a response, as responses delivered say
  std::deque<uint32_t> unanswered;  // next response awaited by each READ and ATOMIC in flight
  Instant last_response{-1};
  Instant quiet_until{-1};  // the end of an RNR wait
  uint32_t quiet_from = 0;  // PSNs that wait
  uint32_t rnr_in_a_row = 0;
  // As responder, in distances of the peer's flow.
  uint32_t arrived = 0;            // in-order packets that arrived: the next expected distance
  std::deque<uint32_t> to_answer;  // next response owed to each READ and ATOMIC that arrived
  int64_t last_acknowledged = -1;
  int64_t last_sequence_nak = -1;
  std::vector<bool> read_started;               // distances at which a READ request arrived
  std::map<uint32_t, uint32_t> read_responses;  // by the message's end: the newest response
  std::map<uint32_t, uint64_t> atomic_originals;

  // Messages whose packets all lie before `distance`.
  uint32_t messages_before(int64_t distance) const;
  // The end of the message that the packet at `distance` belongs to; 0 if it was never sent.
  uint32_t end_of_message(uint32_t distance) const;
};

// A range that the peer may name in requests.
struct Window {
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t address = 0;  // as requests name offset
  Rkey rkey;
};

// A region for local buffers.
struct BufferPool {
  Pool pool;
  uint64_t offset = 0;   // of the region within the host's memory
  uint64_t address = 0;  // as scatter/gather elements name it
  Lkey lkey;
};

// A queue pair, its buffers, and the model of it.
struct Endpoint {
  uint32_t id = 0;
  Host* host = nullptr;
  Memory* memory = nullptr;
  Endpoint* peer = nullptr;
  const EndpointPlan* plan = nullptr;
  const ConnectionPlan* connection = nullptr;
  Random random{0};

  transport::QueuePair* qp = nullptr;  // null once destroyed
  Qpn qpn;
  transport::QpCapabilities granted;
  std::vector<BufferPool> pools;
  Window target;     // WRITE and READ
  Window words;      // ATOMIC
  Window read_only;  // same domain, no remote right but READ
  Window foreign;    // every right, another domain

  uint32_t incarnation = 0;
  Flow flow;
  std::deque<Receive> receives;
  size_t receives_completed = 0;
  bool receive_failed = false;
  WireHistory wire;

  bool connected = false;       // between RTS and the end of the connection
  bool moved_to_error = false;  // by the application
  // The first completion status that is neither success nor flush: why the queue pair failed.
  std::optional<transport::CompletionStatus> failure;
  bool forgotten = false;          // destroyed or reset: no completion may come any more
  uint32_t operations_posted = 0;  // over all incarnations
  uint32_t unsignaled = 0;         // posted since the last signaled one
  bool act_planned = false;        // the application comes back to it
};

// Records a posted operation: its PSNs, its effects on the peer's memory, the receive it consumes.
void note_posted(Endpoint& end, Operation operation);
void note_posted(Endpoint& end, Receive receive);
// The responder of `end`'s flow has executed its first `count` operations.
void note_executed(Endpoint& end, size_t count, Verdict& verdict);
// Nothing more can happen to this connection: effects that are pending may have happened or not.
void settle(Endpoint& end, Verdict& verdict);

// The scatter/gather list's bytes one after another, of a host's memory.
std::vector<std::byte> gather(const Memory& memory, const std::vector<Piece>& pieces);
// Overwrites the buffers with noise, as an application does that reuses them, and returns them.
void give_back(Endpoint& end, std::vector<Piece>& pieces);
// The ends as transcript and violations name them: "end 3 (qp 0x010002)".
std::string name_of(const Endpoint& end);

// The status of the operation in which `fault` shows on the requester's side.
transport::CompletionStatus status_of(Fault fault);
// True if the responder's queue pair goes to ERROR.
bool is_responder_fault(Fault fault);

}  // namespace uroce::sim
