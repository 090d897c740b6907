// The one table of counter names.
#include "datapath/counters.hpp"

#include <fmt/format.h>

namespace uroce::datapath {

namespace {

struct HcaField {
  const char* name;
  uint64_t transport::HcaCounters::*field;
};
struct WireField {
  const char* name;
  uint64_t WireCounters::*field;
};

using Hca = transport::HcaCounters;
constexpr HcaField kHcaFields[] = {
    {"rx_packets", &Hca::rx_packets},
    {"tx_packets", &Hca::tx_packets},
    {"rx_bytes", &Hca::rx_bytes},
    {"tx_bytes", &Hca::tx_bytes},
    {"rx_write_requests", &Hca::rx_write_requests},
    {"rx_read_requests", &Hca::rx_read_requests},
    {"rx_atomic_requests", &Hca::rx_atomic_requests},
    {"duplicate_request", &Hca::duplicate_request},
    {"out_of_sequence", &Hca::out_of_sequence},
    {"packet_seq_err", &Hca::packet_seq_err},
    {"implied_nak_seq_err", &Hca::implied_nak_seq_err},
    {"rnr_nak_retry_err", &Hca::rnr_nak_retry_err},
    {"local_ack_timeout_err", &Hca::local_ack_timeout_err},
    {"tx_retransmitted_packets", &Hca::tx_retransmitted_packets},
    {"req_remote_access_errors", &Hca::req_remote_access_errors},
    {"req_remote_invalid_request", &Hca::req_remote_invalid_request},
    {"resp_remote_access_errors", &Hca::resp_remote_access_errors},
    {"tx_acks", &Hca::tx_acks},
    {"tx_naks", &Hca::tx_naks},
    {"tx_rnr_naks", &Hca::tx_rnr_naks},
};

constexpr WireField kWireFields[] = {
    {"wire_rx_frames", &WireCounters::rx_frames},   {"wire_rx_bytes", &WireCounters::rx_bytes},
    {"wire_tx_frames", &WireCounters::tx_frames},   {"wire_tx_bytes", &WireCounters::tx_bytes},
    {"wire_tx_dropped", &WireCounters::tx_dropped}, {"wire_rx_corrupt", &WireCounters::rx_corrupt},
    {"wire_rx_dropped", &WireCounters::rx_dropped}, {"wire_kicks", &WireCounters::kicks},
};

std::string drop_name(DropReason reason) {
  const bool outgoing = reason == DropReason::kTxNoNeighbour || reason == DropReason::kTxWireError;
  if (reason == DropReason::kBadIcrc) return "rx_icrc_errors";
  return fmt::format("{}_drop_{}", outgoing ? "tx" : "rx", name_of(reason));
}

}  // namespace

std::vector<std::pair<std::string, uint64_t>> named_counters(const transport::HcaCounters& hca,
                                                             const WireCounters& wire) {
  std::vector<std::pair<std::string, uint64_t>> all;
  for (const HcaField& row : kHcaFields) all.emplace_back(row.name, hca.*row.field);
  for (size_t i = 0; i < kDropReasonCount; ++i) {
    all.emplace_back(drop_name(static_cast<DropReason>(i)), hca.drops[i]);
  }
  for (const WireField& row : kWireFields) all.emplace_back(row.name, wire.*row.field);
  return all;
}

}  // namespace uroce::datapath
