// Walks scatter/gather lists, one memory check per element and packet.
#include "transport/scatter_gather.hpp"

#include <algorithm>

#include "transport/user_memory.hpp"

namespace uroce::transport {

namespace {

// The piece of the current element that the next `wanted` bytes start with; steps over empty and
// finished elements. Length 0: the list is at its end.
MemoryRange next_piece(std::span<const Sge> sges, SgeCursor& cursor, uint32_t wanted) {
  while (cursor.index < sges.size()) {
    const Sge& sge = sges[cursor.index];
    const uint32_t length = std::min(sge.length - cursor.offset, wanted);
    if (length != 0) return {sge.address + cursor.offset, length};
    ++cursor.index;
    cursor.offset = 0;
  }
  return {};
}

// Visits the pieces of `length` bytes from the cursor on; false when a key or a visit refuses one.
template <typename Visit>
bool walk(const SgeList& list, SgeCursor& cursor, uint32_t length, AccessFlags needed,
          Visit&& visit) {
  while (length != 0) {
    const MemoryRange piece = next_piece(list.sges, cursor, length);
    if (piece.length == 0) return false;
    const Lkey key = list.sges[cursor.index].lkey;
    const MemoryGrant grant = list.regions.check_local(key, list.pd, piece, needed);
    if (!grant.ok()) return false;
    const auto bytes = static_cast<uint32_t>(piece.length);
    if (!visit(grant.address, bytes)) return false;
    cursor.offset += bytes;
    length -= bytes;
  }
  return true;
}

}  // namespace

MemoryRefusal check_sges(const SgeList& list, AccessFlags needed) {
  for (const Sge& sge : list.sges) {
    if (sge.length == 0) continue;
    const MemoryGrant grant =
        list.regions.check_local(sge.lkey, list.pd, {sge.address, sge.length}, needed);
    if (!grant.ok()) return grant.refusal;
  }
  return MemoryRefusal::kNone;
}

SgeCursor position_at(std::span<const Sge> sges, uint32_t offset) {
  SgeCursor cursor;
  while (cursor.index < sges.size() && offset >= sges[cursor.index].length) {
    offset -= sges[cursor.index].length;
    ++cursor.index;
  }
  cursor.offset = offset;
  return cursor;
}

bool gather(const SgeList& list, SgeCursor& cursor, uint32_t length, OutgoingPacket& packet) {
  return walk(list, cursor, length, 0, [&packet](std::byte* address, uint32_t bytes) {
    packet.segments[packet.segment_count++] = {address, bytes};
    return true;
  });
}

bool scatter(const SgeList& list, SgeCursor& cursor, std::span<const std::byte> payload) {
  const auto length = static_cast<uint32_t>(payload.size());
  // One element is the usual case; several are judged before any of them is written.
  if (cursor.index < list.sges.size() && length > list.sges[cursor.index].length - cursor.offset) {
    SgeCursor probe = cursor;
    if (!walk(list, probe, length, kLocalWrite, [](std::byte*, uint32_t) { return true; })) {
      return false;
    }
  }
  const std::byte* source = payload.data();
  return walk(list, cursor, length, kLocalWrite, [&source](std::byte* address, uint32_t bytes) {
    if (!place(address, {source, bytes})) return false;
    source += bytes;
    return true;
  });
}

}  // namespace uroce::transport
