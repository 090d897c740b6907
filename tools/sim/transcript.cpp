// Turns what happens in a run into lines of text.
#include "tools/sim/transcript.hpp"

#include <fmt/format.h>

#include <utility>

namespace uroce::sim {
namespace {

using transport::Aeth;
using transport::CompletionStatus;
using transport::SendOpcode;

// AETH syndromes (IBTA table 43): three bits of kind, five of value.
std::string describe(const Aeth& aeth) {
  const unsigned value = aeth.syndrome & 0x1f;
  switch (aeth.syndrome >> 5) {
    case 0:
      return fmt::format("ACK credits {:#x} msn {}", value, aeth.msn);
    case 1:
      return fmt::format("RNR NAK timer {} msn {}", value, aeth.msn);
    case 3: {
      static constexpr std::string_view kNames[] = {
          "PSN sequence error", "invalid request", "remote access error",
          "remote operational error", "invalid RD request"};
      return fmt::format("NAK {} msn {}", value < 5 ? kNames[value] : "reserved", aeth.msn);
    }
  }
  return fmt::format("AETH {:#04x} msn {}", aeth.syndrome, aeth.msn);
}

}  // namespace

Transcript::Transcript(bool enabled, Writer writer)
    : enabled_(enabled), writer_(std::move(writer)) {}

void Transcript::line(Instant now, std::string_view text) {
  if (!enabled_) return;
  const std::string whole =
      fmt::format("{:>14.3f} us  {}", static_cast<double>(now.ns) / 1e3, text);
  for (const char c : whole) {
    hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  if (writer_) writer_(whole);
}

std::string describe(const transport::PacketView& packet) {
  const transport::OpcodeInfo& opcode = *packet.opcode;
  std::string text = fmt::format("{:<28} qp {:#08x} psn {:#08x} {:>5} B{}{}", opcode.name,
                                 packet.bth.destination_qpn.value, packet.bth.psn.value(),
                                 packet.payload.size(), packet.bth.ack_request ? " ackreq" : "",
                                 packet.bth.solicited ? " solicited" : "");
  if (opcode.has(transport::kRethFlag)) {
    text += fmt::format(" | va {:#x} rkey {:#x} length {}", packet.reth.virtual_address,
                        packet.reth.rkey.value, packet.reth.dma_length);
  }
  if (opcode.has(transport::kAtomicEthFlag)) {
    text += fmt::format(" | va {:#x} rkey {:#x} swap/add {:#x} compare {:#x}",
                        packet.atomic_eth.virtual_address, packet.atomic_eth.rkey.value,
                        packet.atomic_eth.swap_add, packet.atomic_eth.compare);
  }
  if (opcode.has(transport::kAethFlag)) text += " | " + describe(packet.aeth);
  if (opcode.has(transport::kAtomicAckEthFlag)) {
    text += fmt::format(" original {:#x}", packet.atomic_ack_eth.original);
  }
  if (opcode.has(transport::kImmediateFlag)) text += fmt::format(" | imm {:#x}", packet.immediate);
  return text;
}

std::string describe_fate(uint8_t fate) {
  static constexpr std::pair<uint8_t, std::string_view> kNames[] = {
      {kLost, "lost"},           {kDuplicated, "duplicated"}, {kReordered, "reordered"},
      {kCorrupted, "corrupted"}, {kBlackholed, "blackholed"}, {kMarked, "ECN"}};
  std::string text;
  for (const auto& [bit, name] : kNames) {
    if ((fate & bit) != 0) text += fmt::format("{}{}", text.empty() ? " [" : " ", name);
  }
  return text.empty() ? text : text + "]";
}

std::string_view name_of(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kSuccess:
      return "SUCCESS";
    case CompletionStatus::kLocalLengthError:
      return "LOC_LEN_ERR";
    case CompletionStatus::kLocalQpOperationError:
      return "LOC_QP_OP_ERR";
    case CompletionStatus::kLocalProtectionError:
      return "LOC_PROT_ERR";
    case CompletionStatus::kWrFlushError:
      return "WR_FLUSH_ERR";
    case CompletionStatus::kMwBindError:
      return "MW_BIND_ERR";
    case CompletionStatus::kBadResponseError:
      return "BAD_RESP_ERR";
    case CompletionStatus::kLocalAccessError:
      return "LOC_ACCESS_ERR";
    case CompletionStatus::kRemoteInvalidRequestError:
      return "REM_INV_REQ_ERR";
    case CompletionStatus::kRemoteAccessError:
      return "REM_ACCESS_ERR";
    case CompletionStatus::kRemoteOperationError:
      return "REM_OP_ERR";
    case CompletionStatus::kRetryExceededError:
      return "RETRY_EXC_ERR";
    case CompletionStatus::kRnrRetryExceededError:
      return "RNR_RETRY_EXC_ERR";
    case CompletionStatus::kGeneralError:
      return "GENERAL_ERR";
  }
  return "unknown status";
}

std::string_view name_of(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kRdmaWrite:
      return "WRITE";
    case SendOpcode::kRdmaWriteWithImm:
      return "WRITE_IMM";
    case SendOpcode::kSend:
      return "SEND";
    case SendOpcode::kSendWithImm:
      return "SEND_IMM";
    case SendOpcode::kRdmaRead:
      return "READ";
    case SendOpcode::kAtomicCmpAndSwp:
      return "CMP_SWP";
    case SendOpcode::kAtomicFetchAndAdd:
      return "FETCH_ADD";
  }
  return "unknown operation";
}

std::string describe(const transport::Completion& completion) {
  return fmt::format("completion qp {:#08x} wr_id {:#x} {} opcode {} length {} imm {:#x} flags {}",
                     completion.qpn.value, completion.wr_id, name_of(completion.status),
                     static_cast<int>(completion.opcode), completion.byte_length,
                     completion.immediate, completion.flags);
}

}  // namespace uroce::sim
