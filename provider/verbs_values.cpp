// Proof that transport's enumerations have the values of <infiniband/verbs.h>: conversion by cast.
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "transport/verbs.hpp"

namespace uroce::provider {
namespace {

template <typename Ours, typename Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
  return static_cast<int64_t>(ours) == static_cast<int64_t>(theirs);
}

static_assert(same(transport::kLocalWrite, IBV_ACCESS_LOCAL_WRITE) &&
              same(transport::kRemoteWrite, IBV_ACCESS_REMOTE_WRITE) &&
              same(transport::kRemoteRead, IBV_ACCESS_REMOTE_READ) &&
              same(transport::kRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC) &&
              same(transport::kMwBind, IBV_ACCESS_MW_BIND) &&
              same(transport::kZeroBased, IBV_ACCESS_ZERO_BASED) &&
              same(transport::kOnDemand, IBV_ACCESS_ON_DEMAND) &&
              same(transport::kHugeTlb, IBV_ACCESS_HUGETLB) &&
              same(transport::kRelaxedOrdering, IBV_ACCESS_RELAXED_ORDERING));

static_assert(same(transport::QpType::kRc, IBV_QPT_RC) &&
              same(transport::QpType::kUc, IBV_QPT_UC) &&
              same(transport::QpType::kUd, IBV_QPT_UD) &&
              same(transport::QpType::kRawPacket, IBV_QPT_RAW_PACKET) &&
              same(transport::QpType::kXrcSend, IBV_QPT_XRC_SEND) &&
              same(transport::QpType::kXrcRecv, IBV_QPT_XRC_RECV));

static_assert(same(transport::QpState::kReset, IBV_QPS_RESET) &&
              same(transport::QpState::kInit, IBV_QPS_INIT) &&
              same(transport::QpState::kRtr, IBV_QPS_RTR) &&
              same(transport::QpState::kRts, IBV_QPS_RTS) &&
              same(transport::QpState::kSqd, IBV_QPS_SQD) &&
              same(transport::QpState::kSqe, IBV_QPS_SQE) &&
              same(transport::QpState::kError, IBV_QPS_ERR) &&
              same(transport::QpState::kUnknown, IBV_QPS_UNKNOWN));

static_assert(same(transport::kQpState, IBV_QP_STATE) &&
              same(transport::kQpCurState, IBV_QP_CUR_STATE) &&
              same(transport::kQpEnSqdAsyncNotify, IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
              same(transport::kQpAccessFlags, IBV_QP_ACCESS_FLAGS) &&
              same(transport::kQpPkeyIndex, IBV_QP_PKEY_INDEX) &&
              same(transport::kQpPort, IBV_QP_PORT) && same(transport::kQpQkey, IBV_QP_QKEY) &&
              same(transport::kQpAv, IBV_QP_AV) && same(transport::kQpPathMtu, IBV_QP_PATH_MTU) &&
              same(transport::kQpTimeout, IBV_QP_TIMEOUT) &&
              same(transport::kQpRetryCnt, IBV_QP_RETRY_CNT) &&
              same(transport::kQpRnrRetry, IBV_QP_RNR_RETRY) &&
              same(transport::kQpRqPsn, IBV_QP_RQ_PSN) &&
              same(transport::kQpMaxRdAtomic, IBV_QP_MAX_QP_RD_ATOMIC) &&
              same(transport::kQpAltPath, IBV_QP_ALT_PATH) &&
              same(transport::kQpMinRnrTimer, IBV_QP_MIN_RNR_TIMER) &&
              same(transport::kQpSqPsn, IBV_QP_SQ_PSN) &&
              same(transport::kQpMaxDestRdAtomic, IBV_QP_MAX_DEST_RD_ATOMIC) &&
              same(transport::kQpPathMigState, IBV_QP_PATH_MIG_STATE) &&
              same(transport::kQpCap, IBV_QP_CAP) && same(transport::kQpDestQpn, IBV_QP_DEST_QPN) &&
              same(transport::kQpRateLimit, IBV_QP_RATE_LIMIT));

using transport::SendOpcode;
static_assert(same(SendOpcode::kRdmaWrite, IBV_WR_RDMA_WRITE) &&
              same(SendOpcode::kRdmaWriteWithImm, IBV_WR_RDMA_WRITE_WITH_IMM) &&
              same(SendOpcode::kSend, IBV_WR_SEND) &&
              same(SendOpcode::kSendWithImm, IBV_WR_SEND_WITH_IMM) &&
              same(SendOpcode::kRdmaRead, IBV_WR_RDMA_READ) &&
              same(SendOpcode::kAtomicCmpAndSwp, IBV_WR_ATOMIC_CMP_AND_SWP) &&
              same(SendOpcode::kAtomicFetchAndAdd, IBV_WR_ATOMIC_FETCH_AND_ADD));
static_assert(same(transport::kFence, IBV_SEND_FENCE) &&
              same(transport::kSignaled, IBV_SEND_SIGNALED) &&
              same(transport::kSolicited, IBV_SEND_SOLICITED) &&
              same(transport::kInline, IBV_SEND_INLINE));

using transport::CompletionStatus;
static_assert(same(CompletionStatus::kSuccess, IBV_WC_SUCCESS) &&
              same(CompletionStatus::kLocalLengthError, IBV_WC_LOC_LEN_ERR) &&
              same(CompletionStatus::kLocalQpOperationError, IBV_WC_LOC_QP_OP_ERR) &&
              same(CompletionStatus::kLocalProtectionError, IBV_WC_LOC_PROT_ERR) &&
              same(CompletionStatus::kWrFlushError, IBV_WC_WR_FLUSH_ERR) &&
              same(CompletionStatus::kMwBindError, IBV_WC_MW_BIND_ERR) &&
              same(CompletionStatus::kBadResponseError, IBV_WC_BAD_RESP_ERR) &&
              same(CompletionStatus::kLocalAccessError, IBV_WC_LOC_ACCESS_ERR) &&
              same(CompletionStatus::kRemoteInvalidRequestError, IBV_WC_REM_INV_REQ_ERR) &&
              same(CompletionStatus::kRemoteAccessError, IBV_WC_REM_ACCESS_ERR) &&
              same(CompletionStatus::kRemoteOperationError, IBV_WC_REM_OP_ERR) &&
              same(CompletionStatus::kRetryExceededError, IBV_WC_RETRY_EXC_ERR) &&
              same(CompletionStatus::kRnrRetryExceededError, IBV_WC_RNR_RETRY_EXC_ERR) &&
              same(CompletionStatus::kGeneralError, IBV_WC_GENERAL_ERR));

using transport::CompletionOpcode;
static_assert(same(CompletionOpcode::kSend, IBV_WC_SEND) &&
              same(CompletionOpcode::kRdmaWrite, IBV_WC_RDMA_WRITE) &&
              same(CompletionOpcode::kRdmaRead, IBV_WC_RDMA_READ) &&
              same(CompletionOpcode::kCompSwap, IBV_WC_COMP_SWAP) &&
              same(CompletionOpcode::kFetchAdd, IBV_WC_FETCH_ADD) &&
              same(CompletionOpcode::kBindMw, IBV_WC_BIND_MW) &&
              same(CompletionOpcode::kRecv, IBV_WC_RECV) &&
              same(CompletionOpcode::kRecvRdmaWithImm, IBV_WC_RECV_RDMA_WITH_IMM));
static_assert(same(transport::kWithGrh, IBV_WC_GRH) && same(transport::kWithImm, IBV_WC_WITH_IMM));

using transport::AsyncEventType;
static_assert(same(AsyncEventType::kCqError, IBV_EVENT_CQ_ERR) &&
              same(AsyncEventType::kQpFatal, IBV_EVENT_QP_FATAL) &&
              same(AsyncEventType::kQpRequestError, IBV_EVENT_QP_REQ_ERR) &&
              same(AsyncEventType::kQpAccessError, IBV_EVENT_QP_ACCESS_ERR) &&
              same(AsyncEventType::kCommunicationEstablished, IBV_EVENT_COMM_EST) &&
              same(AsyncEventType::kSqDrained, IBV_EVENT_SQ_DRAINED) &&
              same(AsyncEventType::kDeviceFatal, IBV_EVENT_DEVICE_FATAL) &&
              same(AsyncEventType::kPortActive, IBV_EVENT_PORT_ACTIVE) &&
              same(AsyncEventType::kPortError, IBV_EVENT_PORT_ERR) &&
              same(AsyncEventType::kSrqLimitReached, IBV_EVENT_SRQ_LIMIT_REACHED) &&
              same(AsyncEventType::kQpLastWqeReached, IBV_EVENT_QP_LAST_WQE_REACHED) &&
              same(AsyncEventType::kGidChange, IBV_EVENT_GID_CHANGE));

static_assert(sizeof(transport::Sge) == sizeof(ibv_sge) &&
              offsetof(transport::Sge, address) == offsetof(ibv_sge, addr) &&
              offsetof(transport::Sge, length) == offsetof(ibv_sge, length) &&
              offsetof(transport::Sge, lkey) == offsetof(ibv_sge, lkey));
static_assert(sizeof(Gid) == sizeof(ibv_gid));

}  // namespace
}  // namespace uroce::provider
