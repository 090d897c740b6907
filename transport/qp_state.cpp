// Holds the transition table and the checks that read it.
#include "transport/qp_state.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <span>
#include <string>

namespace uroce::transport {

namespace {

using enum QpState;

// A transition; ERROR and RESET, which every state reaches without attributes, have no rows.
struct Transition {
  QpState from;
  QpState to;
  QpAttributeMask required;
  QpAttributeMask optional;
};

constexpr QpAttributeMask kPathAttributes = kQpAltPath | kQpPathMigState;

constexpr Transition kRcTransitions[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {kInit, kInit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {kInit, kRtr, kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
     kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    {kRtr, kRts, kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic,
     kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kPathAttributes},
    {kRts, kRts, 0, kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kPathAttributes},
    {kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    {kSqd, kRts, 0, kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kPathAttributes},
    {kSqd, kSqd, 0,
     kQpPort | kQpAv | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxRdAtomic |
         kQpMaxDestRdAtomic | kQpAccessFlags | kQpPkeyIndex | kQpMinRnrTimer | kPathAttributes},
};

constexpr Transition kUcTransitions[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {kInit, kInit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {kInit, kRtr, kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn,
     kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    {kRtr, kRts, kQpSqPsn, kQpCurState | kQpAccessFlags | kPathAttributes},
    {kRts, kRts, 0, kQpCurState | kQpAccessFlags | kPathAttributes},
    {kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    {kSqd, kRts, 0, kQpCurState | kQpAccessFlags | kPathAttributes},
    {kSqd, kSqd, 0, kQpAv | kQpAccessFlags | kQpPkeyIndex | kPathAttributes},
    {kSqe, kRts, 0, kQpCurState | kQpAccessFlags},
};

constexpr Transition kUdTransitions[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort | kQpQkey, 0},
    {kInit, kInit, 0, kQpPkeyIndex | kQpPort | kQpQkey},
    {kInit, kRtr, 0, kQpPkeyIndex | kQpQkey},
    {kRtr, kRts, kQpSqPsn, kQpCurState | kQpQkey},
    {kRts, kRts, 0, kQpCurState | kQpQkey},
    {kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    {kSqd, kRts, 0, kQpCurState | kQpQkey},
    {kSqd, kSqd, 0, kQpPkeyIndex | kQpQkey},
    {kSqe, kRts, 0, kQpCurState | kQpQkey},
};

struct TypeRows {
  QpType type;
  std::span<const Transition> rows;
};
constexpr TypeRows kTypes[] = {
    {QpType::kRc, kRcTransitions}, {QpType::kUc, kUcTransitions}, {QpType::kUd, kUdTransitions}};

struct AttributeName {
  QpAttributeMask bit;
  std::string_view name;
};
constexpr AttributeName kAttributeNames[] = {
    {kQpState, "IBV_QP_STATE"},
    {kQpCurState, "IBV_QP_CUR_STATE"},
    {kQpEnSqdAsyncNotify, "IBV_QP_EN_SQD_ASYNC_NOTIFY"},
    {kQpAccessFlags, "IBV_QP_ACCESS_FLAGS"},
    {kQpPkeyIndex, "IBV_QP_PKEY_INDEX"},
    {kQpPort, "IBV_QP_PORT"},
    {kQpQkey, "IBV_QP_QKEY"},
    {kQpAv, "IBV_QP_AV"},
    {kQpPathMtu, "IBV_QP_PATH_MTU"},
    {kQpTimeout, "IBV_QP_TIMEOUT"},
    {kQpRetryCnt, "IBV_QP_RETRY_CNT"},
    {kQpRnrRetry, "IBV_QP_RNR_RETRY"},
    {kQpRqPsn, "IBV_QP_RQ_PSN"},
    {kQpMaxRdAtomic, "IBV_QP_MAX_QP_RD_ATOMIC"},
    {kQpAltPath, "IBV_QP_ALT_PATH"},
    {kQpMinRnrTimer, "IBV_QP_MIN_RNR_TIMER"},
    {kQpSqPsn, "IBV_QP_SQ_PSN"},
    {kQpMaxDestRdAtomic, "IBV_QP_MAX_DEST_RD_ATOMIC"},
    {kQpPathMigState, "IBV_QP_PATH_MIG_STATE"},
    {kQpCap, "IBV_QP_CAP"},
    {kQpDestQpn, "IBV_QP_DEST_QPN"},
    {kQpRateLimit, "IBV_QP_RATE_LIMIT"},
};

std::string names_of(QpAttributeMask mask) {
  std::string names;
  for (const AttributeName& attribute : kAttributeNames) {
    if ((mask & attribute.bit) == 0) continue;
    if (!names.empty()) names += ", ";
    names += attribute.name;
    mask &= ~attribute.bit;
  }
  if (mask != 0) names += fmt::format("{}unknown bits {:#x}", names.empty() ? "" : ", ", mask);
  return names;
}

// One rule on an attribute's value, applied when the mask carries the attribute.
struct ValueRule {
  QpAttributeMask bit;
  std::string_view name;
  uint64_t value;
  uint64_t greatest;
};

Status check_values(const std::string& verb, const QpAttributes& attributes, QpAttributeMask mask,
                    const QpModifyLimits& limits) {
  const AddressVector& address = attributes.address;
  const ValueRule rules[] = {
      {kQpPkeyIndex, "pkey_index", attributes.pkey_index, 0},
      {kQpPathMtu, "path_mtu", bytes_of(attributes.path_mtu), bytes_of(limits.active_mtu)},
      {kQpTimeout, "timeout", attributes.ack_timeout, 31},
      {kQpRetryCnt, "retry_cnt", attributes.retry_count, 7},
      {kQpRnrRetry, "rnr_retry", attributes.rnr_retry, 7},
      {kQpMinRnrTimer, "min_rnr_timer", attributes.min_rnr_timer, 31},
      {kQpMaxRdAtomic, "max_rd_atomic", attributes.max_rd_atomic, limits.max_rd_atomic},
      {kQpMaxDestRdAtomic, "max_dest_rd_atomic", attributes.max_dest_rd_atomic,
       limits.max_rd_atomic},
      {kQpRqPsn, "rq_psn", attributes.rq_psn.value(), Psn::kMask},
      {kQpSqPsn, "sq_psn", attributes.sq_psn.value(), Psn::kMask},
      {kQpDestQpn, "dest_qp_num", attributes.destination_qpn.value, 0xffffff},
      {kQpAv, "ah_attr.sl", address.service_level, 15},
      {kQpAv, "ah_attr.grh.flow_label", address.flow_label, 0xfffff},
  };
  for (const ValueRule& rule : rules) {
    if ((mask & rule.bit) == 0 || rule.value <= rule.greatest) continue;
    return Refusal{EINVAL, fmt::format("{}: {} is {}, the greatest is {}", verb, rule.name,
                                       rule.value, rule.greatest)};
  }
  if ((mask & kQpPort) != 0 && attributes.port != 1) {
    return Refusal{EINVAL, fmt::format("{}: port_num is {}, the device has port 1 only", verb,
                                       attributes.port)};
  }
  if ((mask & kQpAv) != 0 && address.destination_gid.is_zero()) {
    return Refusal{EINVAL, verb + ": ah_attr.grh.dgid is zero; RoCE needs is_global and a GID"};
  }
  return Done{};
}

const TypeRows* rows_of(QpType type) {
  for (const TypeRows& candidate : kTypes) {
    if (candidate.type == type) return &candidate;
  }
  return nullptr;
}

}  // namespace

std::string_view name_of(QpState state) {
  switch (state) {
    case kReset:
      return "RESET";
    case kInit:
      return "INIT";
    case kRtr:
      return "RTR";
    case kRts:
      return "RTS";
    case kSqd:
      return "SQD";
    case kSqe:
      return "SQE";
    case kError:
      return "ERR";
    case kUnknown:
      return "UNKNOWN";
  }
  return "UNKNOWN";
}

Status check_modify(QpType type, QpState current, const QpAttributes& attributes,
                    QpAttributeMask mask, const QpModifyLimits& limits) {
  const QpState next = state_after(current, attributes, mask);
  const std::string verb = fmt::format("modify_qp {}->{}", name_of(current), name_of(next));

  if ((mask & kQpCurState) != 0 && attributes.current_state != current) {
    return Refusal{EINVAL, fmt::format("{}: IBV_QP_CUR_STATE says {}", verb,
                                       name_of(attributes.current_state))};
  }
  const TypeRows* type_rows = rows_of(type);
  if (type_rows == nullptr) return Refusal{EINVAL, verb + ": no such queue pair type"};

  const Transition to_any{current, next, 0, 0};
  const Transition* transition = nullptr;
  // With kQpState only: an attribute without a state change is no reset (IBTA C10-12).
  if (next == kReset || next == kError) transition = &to_any;
  for (const Transition& row : type_rows->rows) {
    if (row.from == current && row.to == next) transition = &row;
  }
  if (transition == nullptr) {
    return Refusal{EINVAL, fmt::format("{}: there is no such transition", verb)};
  }
  const QpAttributeMask missing = transition->required & ~mask;
  if (missing != 0) {
    return Refusal{EINVAL, fmt::format("{}: missing {}", verb, names_of(missing))};
  }
  const QpAttributeMask surplus = mask & ~(transition->required | transition->optional | kQpState);
  if (surplus != 0) {
    return Refusal{EINVAL, fmt::format("{}: not allowed: {}", verb, names_of(surplus))};
  }
  // Allowed by the specification, yet there is one path: migration state is MIGRATED and stays so.
  if ((mask & kQpAltPath) != 0) {
    return Refusal{EOPNOTSUPP, verb + ": IBV_QP_ALT_PATH: no automatic path migration"};
  }
  return check_values(verb, attributes, mask, limits);
}

}  // namespace uroce::transport
