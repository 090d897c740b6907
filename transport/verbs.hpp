// The consumer's vocabulary (IBTA chapter 11) as plain values: attributes, work requests,
// completions. Values of enumerations equal those of <infiniband/verbs.h>, so that the provider
// converts by cast; the provider asserts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/types.hpp"

namespace uroce {

class Path;  // A resolved route to a peer, owned by datapath (by the simulation in tests).

namespace transport {

class CompletionQueue;

// Access rights of a memory region or a queue pair (bits of ibv_access_flags).
using AccessFlags = uint32_t;
enum Access : AccessFlags {
  kLocalWrite = 1u << 0,
  kRemoteWrite = 1u << 1,
  kRemoteRead = 1u << 2,
  kRemoteAtomic = 1u << 3,
  kMwBind = 1u << 4,
  kZeroBased = 1u << 5,
  kOnDemand = 1u << 6,
  kHugeTlb = 1u << 7,
  kRelaxedOrdering = 1u << 20,
};

// A memory region as granted. `iova` is the address that keys refer to (addr, or 0 when
// zero-based).
struct RegionAttributes {
  PdId pd;
  std::byte* address = nullptr;
  uint64_t length = 0;  // bytes
  uint64_t iova = 0;
  AccessFlags access = 0;
};

enum class QpType : uint8_t {
  kRc = 2,
  kUc = 3,
  kUd = 4,
  kRawPacket = 8,
  kXrcSend = 9,
  kXrcRecv = 10
};
enum class QpState : uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kError, kUnknown };

// Which members of QpAttributes a modify carries (bits of ibv_qp_attr_mask).
using QpAttributeMask = uint32_t;
enum QpAttribute : QpAttributeMask {
  kQpState = 1u << 0,
  kQpCurState = 1u << 1,
  kQpEnSqdAsyncNotify = 1u << 2,
  kQpAccessFlags = 1u << 3,
  kQpPkeyIndex = 1u << 4,
  kQpPort = 1u << 5,
  kQpQkey = 1u << 6,
  kQpAv = 1u << 7,
  kQpPathMtu = 1u << 8,
  kQpTimeout = 1u << 9,
  kQpRetryCnt = 1u << 10,
  kQpRnrRetry = 1u << 11,
  kQpRqPsn = 1u << 12,
  kQpMaxRdAtomic = 1u << 13,
  kQpAltPath = 1u << 14,
  kQpMinRnrTimer = 1u << 15,
  kQpSqPsn = 1u << 16,
  kQpMaxDestRdAtomic = 1u << 17,
  kQpPathMigState = 1u << 18,
  kQpCap = 1u << 19,
  kQpDestQpn = 1u << 20,
  kQpRateLimit = 1u << 25,
};

struct AddressVector {
  Gid source_gid;  // resolved by the provider from sgid_index
  Gid destination_gid;
  uint32_t flow_label = 0;  // 20 bits; 0: the UDP source port comes from both QPNs
  uint8_t source_gid_index = 0;
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;  // DSCP << 2 | ECN
  uint8_t service_level = 0;
  const Path* path = nullptr;  // set by datapath when it resolves the address; null until then
};

struct QpCapabilities {
  uint32_t max_send_wr = 0;
  uint32_t max_recv_wr = 0;
  uint32_t max_send_sge = 0;
  uint32_t max_recv_sge = 0;
  uint32_t max_inline_data = 0;  // bytes
};

struct QpInitAttributes {
  QpType type = QpType::kRc;
  PdId pd;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;
  QpCapabilities capabilities;  // what is asked; the HCA may round up and says so by query
  bool signal_all = false;      // sq_sig_all
  void* owner = nullptr;        // the provider's object; comes back in events, unread by transport
};

struct QpAttributes {
  QpState state = QpState::kReset;
  QpState current_state = QpState::kReset;
  Mtu path_mtu = Mtu::k1024;
  uint32_t qkey = 0;
  Psn rq_psn;
  Psn sq_psn;
  Qpn destination_qpn;
  AccessFlags access = 0;
  QpCapabilities capabilities;
  AddressVector address;
  uint16_t pkey_index = 0;
  uint8_t port = 1;
  uint8_t max_rd_atomic = 0;       // initiator depth: READs and ATOMICs in flight as requester
  uint8_t max_dest_rd_atomic = 0;  // responder resources
  uint8_t min_rnr_timer = 0;       // 5-bit code, IBTA table 45
  uint8_t ack_timeout = 0;         // 5 bits: 4.096 us << code; 0 is never
  uint8_t retry_count = 0;         // 0..7
  uint8_t rnr_retry = 0;           // 0..7, 7 is infinite
  bool sqd_async_notify = false;
};

enum class SendOpcode : uint8_t {
  kRdmaWrite = 0,
  kRdmaWriteWithImm = 1,
  kSend = 2,
  kSendWithImm = 3,
  kRdmaRead = 4,
  kAtomicCmpAndSwp = 5,
  kAtomicFetchAndAdd = 6,
};

// Bits of ibv_send_flags.
using SendFlags = uint32_t;
enum SendFlag : SendFlags { kFence = 1, kSignaled = 2, kSolicited = 4, kInline = 8 };

// Bit-compatible with ibv_sge: the provider passes the application's list without copying it.
struct Sge {
  uint64_t address = 0;
  uint32_t length = 0;  // bytes
  Lkey lkey;
};
static_assert(sizeof(Sge) == 16 && offsetof(Sge, length) == 8 && offsetof(Sge, lkey) == 12);

// A work request as posted. Everything it refers to is copied before post_send returns, but for the
// memory that the list names when kInline is not set.
struct SendRequest {
  uint64_t wr_id = 0;
  std::span<const Sge> sges;
  SendOpcode opcode = SendOpcode::kSend;
  SendFlags flags = 0;
  uint32_t immediate = 0;  // as in ibv_send_wr::imm_data: network byte order, carried untouched
  uint64_t remote_address = 0;
  Rkey rkey;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
};

struct ReceiveRequest {
  uint64_t wr_id = 0;
  std::span<const Sge> sges;
};

enum class PostError : uint8_t {
  kNone,
  kQueueFull,       // ENOMEM
  kWrongState,      // EINVAL: the state does not allow posting (RESET; INIT for sends)
  kTooManySges,     // EINVAL
  kInlineTooLong,   // ENOMEM as mlx5
  kBadOpcode,       // EINVAL: not an operation of this transport type, or inline on READ/ATOMIC
  kMessageTooLong,  // EINVAL: over 2^31 bytes
};

// Values of ibv_wc_status.
enum class CompletionStatus : uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalProtectionError = 4,
  kWrFlushError = 5,
  kMwBindError = 6,
  kBadResponseError = 7,
  kLocalAccessError = 8,
  kRemoteInvalidRequestError = 9,
  kRemoteAccessError = 10,
  kRemoteOperationError = 11,
  kRetryExceededError = 12,
  kRnrRetryExceededError = 13,
  kGeneralError = 21,
};

// Values of ibv_wc_opcode.
enum class CompletionOpcode : uint8_t {
  kSend = 0,
  kRdmaWrite = 1,
  kRdmaRead = 2,
  kCompSwap = 3,
  kFetchAdd = 4,
  kBindMw = 5,
  kRecv = 128,
  kRecvRdmaWithImm = 129,
};

// Bits of ibv_wc_flags.
enum CompletionFlag : uint32_t { kWithGrh = 1, kWithImm = 2 };

struct Completion {
  uint64_t wr_id = 0;
  uint32_t byte_length = 0;
  uint32_t immediate = 0;  // network byte order
  Qpn qpn;
  Qpn source_qpn;
  CompletionStatus status = CompletionStatus::kSuccess;
  CompletionOpcode opcode = CompletionOpcode::kSend;
  uint8_t flags = 0;  // CompletionFlag
  uint8_t vendor_error =
      0;  // a VendorError: why, finer than the status; 0 when there is nothing to add
};

// Values of ibv_event_type; `subject` is the owner pointer of the QP or CQ concerned.
enum class AsyncEventType : uint8_t {
  kCqError = 0,
  kQpFatal = 1,
  kQpRequestError = 2,
  kQpAccessError = 3,
  kCommunicationEstablished = 4,
  kSqDrained = 5,
  kDeviceFatal = 8,
  kPortActive = 9,
  kPortError = 10,
  kSrqLimitReached = 15,
  kQpLastWqeReached = 16,
  kGidChange = 18,
};

}  // namespace transport
}  // namespace uroce
