// Sizes of the kernel's packet rings and of the buffers that their frames are copied into.
#pragma once

#include <algorithm>
#include <cstdint>

#include "datapath/frame.hpp"
#include "transport/packet.hpp"

namespace uroce::datapath {

struct RingGeometry {
  uint32_t frame_bytes = 0;   // one ring slot, the kernel's header included
  uint32_t block_bytes = 0;   // what the kernel allocates in one piece: whole pages, whole frames
  uint32_t frames = 0;        // slots in each direction
  uint32_t buffer_bytes = 0;  // the longest frame that a buffer of ours must hold
};

// The kernel writes at most 66 bytes before a received frame and copies a longer frame in part,
// which nobody reads: only frames of up to path MTU 4096 matter, whatever the interface carries.
constexpr RingGeometry ring_geometry(uint32_t interface_mtu) {
  constexpr uint32_t kRxHead = 66;
  constexpr uint32_t kVlanTag = 4;
  constexpr uint32_t kFrameUnit = 512;
  constexpr uint32_t kFramesPerBlock = 8;  // 8 * 512 is one page
  constexpr uint32_t kFrames = 2048;       // 2 ms of 64-byte frames at 1 Mpps
  constexpr uint32_t kLongestPacket = 40 + 8 + transport::kMaxHeaderBytes + 4096 + 3 + 4;
  const uint32_t packet = std::min(interface_mtu, kLongestPacket);
  const uint32_t frame = packet + kEthernetBytes + kVlanTag + kRxHead;
  RingGeometry out;
  out.frame_bytes = (frame + kFrameUnit - 1) / kFrameUnit * kFrameUnit;
  out.block_bytes = out.frame_bytes * kFramesPerBlock;
  out.frames = kFrames;
  out.buffer_bytes = out.frame_bytes - 32;  // the port refuses buffers that hold less
  return out;
}

}  // namespace uroce::datapath
