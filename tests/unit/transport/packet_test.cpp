// parse accepts what is well formed and names what is wrong with the rest; the header builders
// write what parse reads.
#include "transport/packet.hpp"

#include <random>

#include "tests/catch.hpp"
#include "tests/unit/transport/bytes.hpp"

using namespace uroce;
using namespace uroce::transport;
using uroce::tests::bytes;

namespace {

// All headers of an opcode, each field with a value of its own, as a sender builds them.
OutgoingPacket build(uint8_t code, uint8_t pad) {
  OutgoingPacket packet;
  const OpcodeInfo& info = kOpcodes[code];
  begin_headers(packet, {.opcode = code,
                         .pad_count = pad,
                         .destination_qpn = {0x010203},
                         .ack_request = !info.is_response,
                         .psn = Psn(0xabcdef)});
  if (info.has(kXrcEthFlag)) append(packet, XrcEth{0x060504});
  if (info.has(kDethFlag)) append(packet, Deth{0x11223344, {0x445566}});
  if (info.has(kRethFlag)) append(packet, Reth{0x1122334455667788, {0x99aabbcc}, 77});
  if (info.has(kAtomicEthFlag)) append(packet, AtomicEth{0x8, {0x7}, 0x6, 0x5});
  if (info.has(kAethFlag)) append(packet, Aeth{0x1f, 0x33});
  if (info.has(kAtomicAckEthFlag)) append(packet, AtomicAckEth{0xfedcba9876543210});
  if (info.has(kImmediateFlag)) append_immediate(packet, 0x0d0c0b0a);
  if (info.has(kIethFlag)) append_invalidate(packet, Rkey{0x21222324});
  return packet;
}

std::vector<std::byte> frame_of(const OutgoingPacket& packet, size_t payload) {
  std::vector<std::byte> frame(packet.headers.begin(),
                               packet.headers.begin() + packet.header_length);
  frame.insert(frame.end(), payload, std::byte{0x5a});
  frame.insert(frame.end(), packet.pad_length, std::byte{0});
  if (packet.headers[0] == std::byte{0x81}) frame.resize(28);
  return frame;
}

DropReason reason_of(const std::vector<std::byte>& frame) {
  const auto result = parse(frame);
  REQUIRE(std::holds_alternative<DropReason>(result));
  return std::get<DropReason>(result);
}

PacketView view_of(const std::vector<std::byte>& frame) {
  const auto result = parse(frame);
  REQUIRE(std::holds_alternative<PacketView>(result));
  return std::get<PacketView>(result);
}

}  // namespace

TEST_CASE("every known opcode is parsed into the headers that were built for it") {
  for (unsigned code = 0; code < 256; ++code) {
    const OpcodeInfo& info = kOpcodes[code];
    if (!info.known()) continue;
    CAPTURE(info.name);
    for (const size_t payload : {0u, 1u, 2u, 3u, 4u, 4096u}) {
      if (payload != 0 && !info.carries_payload) continue;
      const uint8_t pad = pad_for(static_cast<uint32_t>(payload));
      const OutgoingPacket built = build(static_cast<uint8_t>(code), pad);
      const std::vector<std::byte> frame = frame_of(built, payload);
      const PacketView view = view_of(frame);
      CHECK(view.opcode == &info);
      CHECK(view.bth.opcode == code);
      CHECK(view.bth.pad_count == pad);
      CHECK(view.bth.destination_qpn == Qpn{0x010203});
      CHECK(view.bth.psn == Psn(0xabcdef));
      CHECK(view.bth.ack_request == !info.is_response);
      if (info.has(kXrcEthFlag)) CHECK(view.xrc_eth == XrcEth{0x060504});
      if (info.has(kDethFlag)) CHECK(view.deth == Deth{0x11223344, {0x445566}});
      if (info.has(kRethFlag)) CHECK(view.reth == Reth{0x1122334455667788, {0x99aabbcc}, 77});
      if (info.has(kAtomicEthFlag)) CHECK(view.atomic_eth == AtomicEth{0x8, {0x7}, 0x6, 0x5});
      if (info.has(kAethFlag)) CHECK(view.aeth == Aeth{0x1f, 0x33});
      if (info.has(kAtomicAckEthFlag)) CHECK(view.atomic_ack_eth.original == 0xfedcba9876543210);
      if (info.has(kImmediateFlag)) CHECK(view.immediate == 0x0d0c0b0a);
      if (info.has(kIethFlag)) CHECK(view.invalidate_rkey == 0x21222324);
      CHECK(view.payload.size() == payload);
      if (payload != 0) CHECK(view.payload.data() == frame.data() + info.header_bytes);
      if (info.service != Service::kCnp) CHECK(built.header_length == info.header_bytes);
    }
  }
}

TEST_CASE("a packet that is shorter than its headers is truncated") {
  for (unsigned code = 0; code < 256; ++code) {
    const OpcodeInfo& info = kOpcodes[code];
    if (!info.known()) continue;
    const std::vector<std::byte> frame = frame_of(build(static_cast<uint8_t>(code), 0), 0);
    REQUIRE(frame.size() == info.header_bytes);
    for (size_t size = 0; size < frame.size(); ++size) {
      CAPTURE(info.name, size);
      CHECK(reason_of({frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size)}) ==
            DropReason::kTruncatedPacket);
    }
  }
}

TEST_CASE("a packet whose opcode is reserved or of an unserved service is dropped") {
  for (unsigned code = 0; code < 256; ++code) {
    if (kOpcodes[code].known()) continue;
    std::vector<std::byte> frame(64);
    frame[0] = static_cast<std::byte>(code);
    CHECK(reason_of(frame) == DropReason::kUnknownOpcode);
  }
}

TEST_CASE("a transport version other than 0 is dropped") {
  for (int version = 1; version < 16; ++version) {
    std::vector<std::byte> frame = frame_of(build(opcode::kSendOnly, 0), 8);
    frame[1] |= static_cast<std::byte>(version);
    CHECK(reason_of(frame) == DropReason::kBadTransportVersion);
  }
}

TEST_CASE("a pad that is longer than what follows the headers is dropped") {
  for (uint8_t pad = 1; pad < 4; ++pad) {
    OutgoingPacket packet = build(opcode::kSendOnly, pad);
    packet.pad_length = 0;
    CHECK(reason_of(frame_of(packet, 0)) == DropReason::kBadPad);
  }
}

TEST_CASE("a packet whose payload and pad are no multiple of four bytes is dropped") {
  for (uint8_t pad = 0; pad < 4; ++pad) {
    for (size_t payload = 4; payload < 12; ++payload) {
      const std::vector<std::byte> frame = frame_of(build(opcode::kSendOnly, pad), payload);
      CAPTURE(pad, payload);
      if ((payload + pad) % 4 == 0) {
        CHECK(view_of(frame).payload.size() == payload);
      } else {
        CHECK(reason_of(frame) == DropReason::kBadPad);
      }
    }
  }
}

TEST_CASE("payload behind an opcode that carries none is dropped") {
  for (unsigned code = 0; code < 256; ++code) {
    const OpcodeInfo& info = kOpcodes[code];
    if (!info.known() || info.carries_payload) continue;
    std::vector<std::byte> frame = frame_of(build(static_cast<uint8_t>(code), 0), 0);
    frame.resize(frame.size() + 4);
    CAPTURE(info.name);
    CHECK(reason_of(frame) == DropReason::kBadLength);
  }
}

TEST_CASE("the immediate is carried as the consumer's bytes, whatever their order means") {
  const PacketView view = view_of(bytes("05 40 ffff 00 000007 00 000001 01020304"));
  CHECK(view.immediate == 0x04030201);
}

TEST_CASE("either value of MigReq and all reserved bits are accepted") {
  const PacketView view = view_of(bytes("04 00 ffff 3f 000007 7f 000001"));
  CHECK_FALSE(view.bth.mig_req);
  CHECK_FALSE(view.bth.ack_request);
  CHECK(view.payload.empty());
}

TEST_CASE("the pad fills a payload up to a multiple of four") {
  CHECK(pad_for(0) == 0);
  CHECK(pad_for(1) == 3);
  CHECK(pad_for(2) == 2);
  CHECK(pad_for(3) == 1);
  CHECK(pad_for(4096) == 0);
}

TEST_CASE("random bytes are either refused or lie wholly inside the frame") {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> frame(random() % 100);
    for (std::byte& byte : frame) byte = static_cast<std::byte>(random());
    if (frame.size() > 1) frame[1] &= std::byte{0xf0};
    const auto result = parse(frame);
    if (const auto* view = std::get_if<PacketView>(&result)) {
      REQUIRE(view->payload.data() == frame.data() + view->opcode->header_bytes);
      REQUIRE(view->payload.size() + view->opcode->header_bytes + view->bth.pad_count ==
              frame.size());
    }
  }
}
