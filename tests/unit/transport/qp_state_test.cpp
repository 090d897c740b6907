// The state table against the masks that programs use, each refusal by its text, and every pair of
// states.
#include "transport/qp_state.hpp"

#include <cerrno>
#include <set>

#include "tests/catch.hpp"

using namespace uroce;
using namespace uroce::transport;
using enum QpState;

namespace {

constexpr QpState kStates[] = {kReset, kInit, kRtr, kRts, kSqd, kSqe, kError};

// What ibv_rc_pingpong and perftest pass.
constexpr QpAttributeMask kToInit = kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
constexpr QpAttributeMask kToRtr =
    kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer;
constexpr QpAttributeMask kToRts =
    kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxRdAtomic;

QpAttributes valid(QpState next) {
  QpAttributes attributes;
  attributes.state = next;
  attributes.address.destination_gid = Gid::from_ipv4(127, 0, 0, 2);
  attributes.destination_qpn = {0x020001};
  attributes.ack_timeout = 14;
  attributes.retry_count = 7;
  attributes.rnr_retry = 7;
  attributes.min_rnr_timer = 12;
  attributes.max_rd_atomic = 1;
  attributes.max_dest_rd_atomic = 1;
  return attributes;
}

Status check(QpState from, QpState to, QpAttributeMask mask, QpType type = QpType::kRc) {
  return check_modify(type, from, valid(to), mask, {});
}

std::string why(const Status& status) {
  REQUIRE_FALSE(status.ok());
  CHECK(status.refusal().error == EINVAL);
  return status.refusal().why;
}

// The same with one attribute set to a value of the test's.
template <typename Change>
Status check_value(QpState from, QpState to, QpAttributeMask mask, Change change) {
  QpAttributes attributes = valid(to);
  change(attributes);
  return check_modify(QpType::kRc, from, attributes, mask, {});
}

}  // namespace

TEST_CASE("RC walks from RESET to RTS with the masks that programs pass") {
  CHECK(check(kReset, kInit, kToInit));
  CHECK(check(kInit, kInit, kQpState | kQpAccessFlags));
  CHECK(check(kInit, kRtr, kToRtr));
  CHECK(check(kInit, kRtr, kToRtr | kQpPkeyIndex | kQpAccessFlags));
  CHECK(check(kRtr, kRts, kToRts));
  CHECK(check(kRtr, kRts, kToRts | kQpAccessFlags | kQpMinRnrTimer | kQpPathMigState));
  CHECK(check(kRts, kRts, kQpMinRnrTimer));  // no IBV_QP_STATE: the state stays
  CHECK(check(kRts, kSqd, kQpState | kQpEnSqdAsyncNotify));
  CHECK(check(kSqd, kSqd, kQpState | kQpAv | kQpTimeout | kQpRetryCnt | kQpRnrRetry));
  CHECK(check(kSqd, kRts, kQpState));
}

TEST_CASE("each attribute that a transition requires is named when it is missing") {
  const struct {
    QpState from, to;
    QpAttributeMask mask;
    QpAttributeMask bit;
    const char* text;
  } cases[] = {
      {kReset, kInit, kToInit, kQpPkeyIndex, "modify_qp RESET->INIT: missing IBV_QP_PKEY_INDEX"},
      {kReset, kInit, kToInit, kQpPort, "modify_qp RESET->INIT: missing IBV_QP_PORT"},
      {kReset, kInit, kToInit, kQpAccessFlags,
       "modify_qp RESET->INIT: missing IBV_QP_ACCESS_FLAGS"},
      {kInit, kRtr, kToRtr, kQpAv, "modify_qp INIT->RTR: missing IBV_QP_AV"},
      {kInit, kRtr, kToRtr, kQpPathMtu, "modify_qp INIT->RTR: missing IBV_QP_PATH_MTU"},
      {kInit, kRtr, kToRtr, kQpDestQpn, "modify_qp INIT->RTR: missing IBV_QP_DEST_QPN"},
      {kInit, kRtr, kToRtr, kQpRqPsn, "modify_qp INIT->RTR: missing IBV_QP_RQ_PSN"},
      {kInit, kRtr, kToRtr, kQpMaxDestRdAtomic,
       "modify_qp INIT->RTR: missing IBV_QP_MAX_DEST_RD_ATOMIC"},
      {kInit, kRtr, kToRtr, kQpMinRnrTimer, "modify_qp INIT->RTR: missing IBV_QP_MIN_RNR_TIMER"},
      {kRtr, kRts, kToRts, kQpTimeout, "modify_qp RTR->RTS: missing IBV_QP_TIMEOUT"},
      {kRtr, kRts, kToRts, kQpRetryCnt, "modify_qp RTR->RTS: missing IBV_QP_RETRY_CNT"},
      {kRtr, kRts, kToRts, kQpRnrRetry, "modify_qp RTR->RTS: missing IBV_QP_RNR_RETRY"},
      {kRtr, kRts, kToRts, kQpSqPsn, "modify_qp RTR->RTS: missing IBV_QP_SQ_PSN"},
      {kRtr, kRts, kToRts, kQpMaxRdAtomic, "modify_qp RTR->RTS: missing IBV_QP_MAX_QP_RD_ATOMIC"},
  };
  for (const auto& c : cases) CHECK(why(check(c.from, c.to, c.mask & ~c.bit)) == c.text);
}

TEST_CASE("all missing attributes are named in one text") {
  CHECK(why(check(kReset, kInit, kQpState)) ==
        "modify_qp RESET->INIT: missing IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT");
}

TEST_CASE("an attribute that a transition does not take is named") {
  CHECK(why(check(kReset, kInit, kToInit | kQpSqPsn)) ==
        "modify_qp RESET->INIT: not allowed: IBV_QP_SQ_PSN");
  CHECK(why(check(kInit, kRtr, kToRtr | kQpTimeout | kQpCap)) ==
        "modify_qp INIT->RTR: not allowed: IBV_QP_TIMEOUT, IBV_QP_CAP");
  CHECK(why(check(kRts, kRts, kQpState | kQpDestQpn)) ==
        "modify_qp RTS->RTS: not allowed: IBV_QP_DEST_QPN");
  CHECK(why(check(kRts, kError, kQpState | kQpAv)) == "modify_qp RTS->ERR: not allowed: IBV_QP_AV");
  CHECK(why(check(kReset, kInit, kToInit | 1u << 30)) ==
        "modify_qp RESET->INIT: not allowed: unknown bits 0x40000000");
}

TEST_CASE("every attribute is either required, optional or refused on INIT to RTR") {
  for (unsigned bit = 0; bit < 32; ++bit) {
    const QpAttributeMask attribute = 1u << bit;
    CAPTURE(bit);
    if (attribute & (kToRtr & ~kQpState)) {
      CHECK_FALSE(check(kInit, kRtr, kToRtr & ~attribute));
    } else if (attribute & (kQpState | kQpAccessFlags | kQpPkeyIndex)) {
      CHECK(check(kInit, kRtr, kToRtr | attribute));
    } else {
      CHECK_FALSE(check(kInit, kRtr, kToRtr | attribute));
    }
  }
}

TEST_CASE("no other transition exists, and ERR and RESET are reached from everywhere") {
  const std::set<std::pair<QpState, QpState>> rc = {{kReset, kInit}, {kInit, kInit}, {kInit, kRtr},
                                                    {kRtr, kRts},    {kRts, kRts},   {kRts, kSqd},
                                                    {kSqd, kRts},    {kSqd, kSqd}};
  for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kUd}) {
    auto expected = rc;
    if (type != QpType::kRc) expected.insert({kSqe, kRts});
    for (const QpState from : kStates) {
      CHECK(check(from, kReset, kQpState, type));
      CHECK(check(from, kError, kQpState, type));
      for (const QpState to : kStates) {
        if (to == kReset || to == kError) continue;
        const Status status = check(from, to, kQpState | kQpRateLimit, type);
        REQUIRE_FALSE(status.ok());
        const bool none =
            status.refusal().why.find("there is no such transition") != std::string::npos;
        CAPTURE(name_of(from), name_of(to));
        CHECK(none == !expected.contains({from, to}));
      }
    }
  }
}

TEST_CASE("UC takes no reliability attributes and UD takes a Q_Key") {
  CHECK(check(kReset, kInit, kToInit, QpType::kUc));
  CHECK(check(kInit, kRtr, kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn, QpType::kUc));
  CHECK_FALSE(check(kInit, kRtr, kToRtr, QpType::kUc));
  CHECK(check(kRtr, kRts, kQpState | kQpSqPsn, QpType::kUc));
  CHECK_FALSE(check(kRtr, kRts, kToRts, QpType::kUc));
  const QpAttributeMask ud_init = kQpState | kQpPkeyIndex | kQpPort | kQpQkey;
  CHECK(check(kReset, kInit, ud_init, QpType::kUd));
  CHECK_FALSE(check(kReset, kInit, kToInit, QpType::kUd));
  CHECK_FALSE(check(kReset, kInit, ud_init, QpType::kRc));
  CHECK(check(kInit, kRtr, kQpState, QpType::kUd));
  CHECK(check(kRtr, kRts, kQpState | kQpSqPsn, QpType::kUd));
}

TEST_CASE("a queue pair type without rows is refused") {
  CHECK(why(check(kReset, kInit, kToInit, QpType::kRawPacket)) ==
        "modify_qp RESET->INIT: no such queue pair type");
}

TEST_CASE("IBV_QP_CUR_STATE must be the state that the queue pair is in") {
  const auto with = [](QpState claimed) {
    return check_value(kRtr, kRts, kToRts | kQpCurState,
                       [&](QpAttributes& a) { a.current_state = claimed; });
  };
  CHECK(with(kRtr));
  CHECK(why(with(kRts)) == "modify_qp RTR->RTS: IBV_QP_CUR_STATE says RTS");
}

TEST_CASE("an alternate path is an operation that is not supported") {
  const Status status = check(kRtr, kRts, kToRts | kQpAltPath);
  REQUIRE_FALSE(status.ok());
  CHECK(status.refusal().error == EOPNOTSUPP);
}

TEST_CASE("the last value of each range is taken and the next one is refused by name") {
  const auto init = [](auto change) { return check_value(kReset, kInit, kToInit, change); };
  const auto rtr = [](auto change) { return check_value(kInit, kRtr, kToRtr, change); };
  const auto rts = [](auto change) { return check_value(kRtr, kRts, kToRts, change); };

  CHECK(why(init([](QpAttributes& a) { a.pkey_index = 1; })) ==
        "modify_qp RESET->INIT: pkey_index is 1, the greatest is 0");
  CHECK(why(init([](QpAttributes& a) { a.port = 2; })) ==
        "modify_qp RESET->INIT: port_num is 2, the device has port 1 only");
  CHECK_FALSE(init([](QpAttributes& a) { a.port = 0; }));

  CHECK(rtr([](QpAttributes& a) { a.min_rnr_timer = 31; }));
  CHECK(why(rtr([](QpAttributes& a) { a.min_rnr_timer = 32; })) ==
        "modify_qp INIT->RTR: min_rnr_timer is 32, the greatest is 31");
  CHECK(rtr([](QpAttributes& a) { a.max_dest_rd_atomic = 16; }));
  CHECK(why(rtr([](QpAttributes& a) { a.max_dest_rd_atomic = 17; })) ==
        "modify_qp INIT->RTR: max_dest_rd_atomic is 17, the greatest is 16");
  CHECK(rtr([](QpAttributes& a) { a.destination_qpn = {0xffffff}; }));
  CHECK(why(rtr([](QpAttributes& a) { a.destination_qpn = {0x1000000}; })) ==
        "modify_qp INIT->RTR: dest_qp_num is 16777216, the greatest is 16777215");
  CHECK(why(rtr([](QpAttributes& a) { a.address.service_level = 16; })) ==
        "modify_qp INIT->RTR: ah_attr.sl is 16, the greatest is 15");
  CHECK_FALSE(rtr([](QpAttributes& a) { a.address.flow_label = 0x100000; }));
  CHECK(why(rtr([](QpAttributes& a) { a.address.destination_gid = {}; })) ==
        "modify_qp INIT->RTR: ah_attr.grh.dgid is zero; RoCE needs is_global and a GID");

  CHECK(rts([](QpAttributes& a) { a.ack_timeout = 31; }));
  CHECK(why(rts([](QpAttributes& a) { a.ack_timeout = 32; })) ==
        "modify_qp RTR->RTS: timeout is 32, the greatest is 31");
  CHECK(why(rts([](QpAttributes& a) { a.retry_count = 8; })) ==
        "modify_qp RTR->RTS: retry_cnt is 8, the greatest is 7");
  CHECK(why(rts([](QpAttributes& a) { a.rnr_retry = 8; })) ==
        "modify_qp RTR->RTS: rnr_retry is 8, the greatest is 7");
  CHECK(why(rts([](QpAttributes& a) { a.max_rd_atomic = 17; })) ==
        "modify_qp RTR->RTS: max_rd_atomic is 17, the greatest is 16");
}

TEST_CASE("a path MTU above the port's is refused") {
  QpAttributes attributes = valid(kRtr);
  attributes.path_mtu = Mtu::k1024;
  CHECK(check_modify(QpType::kRc, kInit, attributes, kToRtr, {.active_mtu = Mtu::k1024}));
  attributes.path_mtu = Mtu::k2048;
  CHECK(why(check_modify(QpType::kRc, kInit, attributes, kToRtr, {.active_mtu = Mtu::k1024})) ==
        "modify_qp INIT->RTR: path_mtu is 2048, the greatest is 1024");
}

TEST_CASE("values that the mask does not carry are not judged") {
  CHECK(check_value(kReset, kInit, kToInit, [](QpAttributes& a) { a.retry_count = 200; }));
}
