// Holds the names of drop reasons, in the order of the enumeration.
#include "transport/drop_reason.hpp"

#include <array>

namespace uroce {

namespace {

constexpr std::array<std::string_view, kDropReasonCount> kNames = {
    "not_roce",
    "truncated_frame",
    "bad_ip_header",
    "bad_udp_checksum",
    "bad_icrc",
    "not_our_address",
    "no_neighbour",
    "wire_error",
    "unknown_opcode",
    "truncated_packet",
    "bad_pad",
    "bad_transport_version",
    "unknown_qpn",
    "wrong_service",
    "wrong_state",
    "pkey_mismatch",
    "qkey_mismatch",
    "wrong_source",
    "out_of_sequence",
    "duplicate_atomic_not_found",
    "duplicate_rejected",
    "ghost_acknowledge",
    "unexpected_response",
    "bad_length",
};

}  // namespace

std::string_view name_of(DropReason reason) {
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace uroce
