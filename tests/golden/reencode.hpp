// Writes a parsed packet's headers again, through the builders that the requester uses.
#pragma once

#include "transport/packet.hpp"

namespace uroce::tests {

inline transport::OutgoingPacket reencode_headers(const transport::PacketView& view) {
  using namespace transport;
  OutgoingPacket packet;
  const OpcodeInfo& info = *view.opcode;
  begin_headers(packet, view.bth);
  if (info.has(kXrcEthFlag)) append(packet, view.xrc_eth);
  if (info.has(kDethFlag)) append(packet, view.deth);
  if (info.has(kRethFlag)) append(packet, view.reth);
  if (info.has(kAtomicEthFlag)) append(packet, view.atomic_eth);
  if (info.has(kAethFlag)) append(packet, view.aeth);
  if (info.has(kAtomicAckEthFlag)) append(packet, view.atomic_ack_eth);
  if (info.has(kImmediateFlag)) append_immediate(packet, view.immediate);
  if (info.has(kIethFlag)) append_invalidate(packet, Rkey{view.invalidate_rkey});
  return packet;
}

}  // namespace uroce::tests
