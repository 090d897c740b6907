// Parses untrusted bytes into a packet that cannot be malformed.
#include "transport/packet.hpp"

namespace uroce::transport {

namespace {

// Takes headers off the front of bytes whose length has been checked against the opcode table.
class HeaderReader {
 public:
  explicit HeaderReader(const std::byte* at) : at_(at) {}

  template <typename Header>
  Header take() {
    const auto header = Header::decode(HeaderBytes<Header::kSize>(at_, Header::kSize));
    at_ += Header::kSize;
    return header;
  }
  const std::byte* skip(size_t bytes) {
    const std::byte* field = at_;
    at_ += bytes;
    return field;
  }

 private:
  const std::byte* at_;
};

void decode_extensions(HeaderReader& reader, PacketView& packet) {
  const OpcodeInfo& info = *packet.opcode;
  if (info.has(kXrcEthFlag)) packet.xrc_eth = reader.take<XrcEth>();
  if (info.has(kDethFlag)) packet.deth = reader.take<Deth>();
  if (info.has(kRethFlag)) packet.reth = reader.take<Reth>();
  if (info.has(kAtomicEthFlag)) packet.atomic_eth = reader.take<AtomicEth>();
  if (info.has(kAethFlag)) packet.aeth = reader.take<Aeth>();
  if (info.has(kAtomicAckEthFlag)) packet.atomic_ack_eth = reader.take<AtomicAckEth>();
  if (info.has(kImmediateFlag)) {
    std::memcpy(&packet.immediate, reader.skip(kImmediateSize), kImmediateSize);
  }
  if (info.has(kIethFlag)) packet.invalidate_rkey = load_be32(reader.skip(kIethSize));
}

}  // namespace

std::variant<PacketView, DropReason> parse(std::span<const std::byte> transport_bytes) {
  const std::span<const std::byte> bytes = transport_bytes;
  if (bytes.size() < Bth::kSize) return DropReason::kTruncatedPacket;

  std::variant<PacketView, DropReason> result;
  PacketView& packet = *std::get_if<PacketView>(&result);
  HeaderReader reader(bytes.data());
  packet.bth = reader.take<Bth>();
  if (packet.bth.version != 0) return DropReason::kBadTransportVersion;
  const OpcodeInfo& info = kOpcodes[packet.bth.opcode];
  if (!info.known()) return DropReason::kUnknownOpcode;
  if (bytes.size() < info.header_bytes) return DropReason::kTruncatedPacket;

  const size_t rest = bytes.size() - info.header_bytes;
  const size_t pad = packet.bth.pad_count;
  if (rest % 4 != 0 || pad > rest) return DropReason::kBadPad;
  if (!info.carries_payload && rest != 0) return DropReason::kBadLength;

  packet.opcode = &info;
  decode_extensions(reader, packet);
  packet.payload = bytes.subspan(info.header_bytes, rest - pad);
  return result;
}

}  // namespace uroce::transport
