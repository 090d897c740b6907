// Why a packet was dropped: one table, one counter each, named rx_drop_<reason> and
// tx_drop_<reason>.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace uroce {

enum class DropReason : uint8_t {
  // datapath
  kNotRoce,         // not an IP/UDP frame to port 4791
  kTruncatedFrame,  // shorter than its own headers say
  kBadIpHeader,
  kBadUdpChecksum,
  kBadIcrc,
  kNotOurAddress,  // destination IP is no GID of the device
  kTxNoNeighbour,  // next hop's MAC unknown
  kTxWireError,
  // transport: parsing
  kUnknownOpcode,
  kTruncatedPacket,  // shorter than the headers that its opcode asks for
  kBadPad,
  kBadTransportVersion,
  // transport: finding the queue pair
  kUnknownQpn,
  kWrongService,  // opcode's service is not the QP's
  kWrongState,
  kPkeyMismatch,
  kQkeyMismatch,
  kWrongSource,  // source GID is not the connected peer's
  // transport: requester and responder
  kOutOfSequence,  // behind a gap that has been NAKed already
  kDuplicateAtomicNotFound,
  kDuplicateRejected,  // duplicate READ outside the original's range, or of another key
  kGhostAcknowledge,   // ACK for a PSN that was never sent or is long completed
  kUnexpectedResponse,
  kBadLength,  // silent drop of a response or of a datagram of illegal length
  kCount
};

// "bad_icrc" for kBadIcrc.
std::string_view name_of(DropReason reason);

inline constexpr size_t kDropReasonCount = static_cast<size_t>(DropReason::kCount);

}  // namespace uroce
