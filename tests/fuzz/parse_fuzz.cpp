// Fuzz target: the packet parser. Input: the bytes from BTH to pad.
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/fuzz/target.hpp"
#include "tests/golden/reencode.hpp"
#include "transport/packet.hpp"

using namespace uroce;
using namespace uroce::transport;
using uroce::tests::expect;

namespace {

// What is meaningful in the first bytes of a packet: a BTH but for its reserved bits.
std::vector<std::byte> without_reserved_bits(std::span<const std::byte> bytes) {
  std::vector<std::byte> masked(bytes.begin(), bytes.end());
  masked[4] &= std::byte{0xc0};
  masked[8] &= std::byte{0x80};
  return masked;
}

void check_view(const PacketView& view, std::span<const std::byte> bytes) {
  expect(view.opcode == &kOpcodes[view.bth.opcode], "the row is the opcode's");
  expect(view.opcode->known(), "a parsed opcode is known");
  expect(view.bth.version == 0, "the transport version is 0");
  expect(view.opcode->header_bytes + view.payload.size() + view.bth.pad_count == bytes.size(),
         "headers, payload and pad are the whole packet");
  expect(view.payload.empty() || view.payload.data() == bytes.data() + view.opcode->header_bytes,
         "the payload follows the headers");
  const OutgoingPacket again = uroce::tests::reencode_headers(view);
  std::vector<std::byte> expected = without_reserved_bits(bytes.first(view.opcode->header_bytes));
  if (view.opcode->has(kDethFlag)) expected[Bth::kSize + 4] = std::byte{0};
  if (view.opcode->has(kXrcEthFlag)) expected[Bth::kSize] = std::byte{0};
  expect(again.header_length <= expected.size(), "headers are as long as the table says");
  expect(std::memcmp(again.headers.data(), expected.data(), again.header_length) == 0,
         "headers encode to the bytes that they were decoded from");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A heap copy of the exact size: AddressSanitizer then sees any read beyond it.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  const auto parsed = parse(bytes);
  if (const auto* view = std::get_if<PacketView>(&parsed)) check_view(*view, bytes);
  return 0;
}
