// Scatter/gather lists against the memory table: checks, gathering into packets, scattering
// payloads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/memory_table.hpp"
#include "transport/packet.hpp"
#include "transport/verbs.hpp"

namespace uroce::transport {

// A list with the domain and the table that judge its keys.
struct SgeList {
  const MemoryTable& regions;
  PdId pd;
  std::span<const Sge> sges;
};

// A position in a list: at `offset` bytes of element `index`.
struct SgeCursor {
  uint32_t index = 0;
  uint32_t offset = 0;
};

// kNone if every element that is not empty lies in a region that grants `needed`.
MemoryRefusal check_sges(const SgeList& list, AccessFlags needed);

// The position `offset` bytes into the list.
SgeCursor position_at(std::span<const Sge> sges, uint32_t offset);

// Appends segments for the next `length` bytes of the list to the packet and moves the cursor on.
// Keys are judged anew for each packet, since a region may go while its WQE is in flight: false if
// one refuses.
[[nodiscard]] bool gather(const SgeList& list, SgeCursor& cursor, uint32_t length,
                          OutgoingPacket& packet);

// Stores a payload at the cursor and moves it on. Elements beyond the list's end must not be asked
// for. False, with nothing stored, if a key refuses.
[[nodiscard]] bool scatter(const SgeList& list, SgeCursor& cursor,
                           std::span<const std::byte> payload);

}  // namespace uroce::transport
