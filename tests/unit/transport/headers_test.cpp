// Each header against bytes written by hand, then bit by bit.
#include "transport/headers.hpp"

#include <random>

#include "tests/catch.hpp"
#include "tests/unit/transport/bytes.hpp"

using namespace uroce;
using namespace uroce::transport;
using uroce::tests::bytes;

namespace {

template <typename Header>
Header decode(const std::vector<std::byte>& from) {
  REQUIRE(from.size() == Header::kSize);
  return Header::decode(HeaderBytes<Header::kSize>(from.data(), Header::kSize));
}

template <typename Header>
std::vector<std::byte> encode(const Header& header) {
  // Filled with ones: encode must write every bit.
  std::vector<std::byte> to(Header::kSize, std::byte{0xff});
  header.encode(HeaderRoom<Header::kSize>(to.data(), Header::kSize));
  return to;
}

// Flips each bit of zero bytes: meaningful bits survive a round trip, reserved ones come back 0.
template <typename Header>
void check_each_bit(const std::vector<std::byte>& reserved) {
  for (size_t bit = 0; bit < Header::kSize * 8; ++bit) {
    std::vector<std::byte> in(Header::kSize);
    in[bit / 8] = std::byte{1} << static_cast<int>(bit % 8);
    const bool is_reserved = (reserved[bit / 8] & in[bit / 8]) != std::byte{0};
    const std::vector<std::byte> out = encode(decode<Header>(in));
    CAPTURE(bit, is_reserved);
    CHECK(out == (is_reserved ? std::vector<std::byte>(Header::kSize) : in));
  }
}

}  // namespace

TEST_CASE("BTH decodes to its fields and back to its bytes") {
  const auto wire = bytes("0a f0 ffff c0 123456 80 fffffe");
  const Bth bth = decode<Bth>(wire);
  CHECK(bth.opcode == 0x0a);
  CHECK(bth.solicited);
  CHECK(bth.mig_req);
  CHECK(bth.pad_count == 3);
  CHECK(bth.version == 0);
  CHECK(bth.pkey == 0xffff);
  CHECK(bth.fecn);
  CHECK(bth.becn);
  CHECK(bth.destination_qpn == Qpn{0x123456});
  CHECK(bth.ack_request);
  CHECK(bth.psn == Psn(0xfffffe));
  CHECK(encode(bth) == wire);
}

TEST_CASE("BTH fields do not leak into their neighbours") {
  Bth bth;
  CHECK(encode(bth) == bytes("00 40 ffff 00 000000 00 000000"));
  bth.mig_req = false;
  CHECK(encode(bth) == bytes("00 00 ffff 00 000000 00 000000"));
  bth.destination_qpn = {0xff000001};  // beyond 24 bits: cut
  bth.pad_count = 7;                   // beyond 2 bits: cut
  CHECK(encode(bth) == bytes("00 30 ffff 00 000001 00 000000"));
}

TEST_CASE("reserved bits of headers are ignored on receipt and sent as zero") {
  check_each_bit<Bth>(bytes("00 00 0000 3f 000000 7f 000000"));
  check_each_bit<Reth>(std::vector<std::byte>(Reth::kSize));
  check_each_bit<AtomicEth>(std::vector<std::byte>(AtomicEth::kSize));
  check_each_bit<Aeth>(std::vector<std::byte>(Aeth::kSize));
  check_each_bit<AtomicAckEth>(std::vector<std::byte>(AtomicAckEth::kSize));
  check_each_bit<Deth>(bytes("00000000 ff 000000"));
  check_each_bit<XrcEth>(bytes("ff 000000"));
}

TEST_CASE("RETH decodes to its fields and back to its bytes") {
  const auto wire = bytes("0102030405060708 11121314 80000000");
  const Reth reth = decode<Reth>(wire);
  CHECK(reth == Reth{0x0102030405060708, {0x11121314}, 0x80000000});
  CHECK(encode(reth) == wire);
}

TEST_CASE("AtomicETH decodes to its fields and back to its bytes") {
  const auto wire = bytes("0102030405060708 11121314 2122232425262728 3132333435363738");
  const AtomicEth eth = decode<AtomicEth>(wire);
  CHECK(eth == AtomicEth{0x0102030405060708, {0x11121314}, 0x2122232425262728, 0x3132333435363738});
  CHECK(encode(eth) == wire);
}

TEST_CASE("AETH decodes to its fields and back to its bytes") {
  const auto wire = bytes("1f 010203");
  CHECK(decode<Aeth>(wire) == Aeth{0x1f, 0x010203});
  CHECK(encode(Aeth{0x1f, 0xff010203}) == wire);  // an MSN beyond 24 bits is cut
}

TEST_CASE("AtomicAckETH decodes to its field and back to its bytes") {
  const auto wire = bytes("0102030405060708");
  CHECK(decode<AtomicAckEth>(wire).original == 0x0102030405060708);
  CHECK(encode(AtomicAckEth{0x0102030405060708}) == wire);
}

TEST_CASE("DETH decodes to its fields and back to its bytes") {
  const auto wire = bytes("80010000 00 fffffe");
  CHECK(decode<Deth>(wire) == Deth{0x80010000, {0xfffffe}});
  CHECK(encode(Deth{0x80010000, {0x1fffffe}}) == wire);
}

TEST_CASE("XRCETH decodes to its field and back to its bytes") {
  const auto wire = bytes("00 010203");
  CHECK(decode<XrcEth>(wire).xrc_srq == 0x010203);
  CHECK(encode(XrcEth{0xff010203}) == wire);
}

TEST_CASE("headers survive a round trip whatever their values") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto bits = [&random](uint64_t mask) { return random() & mask; };
    const Bth bth{.opcode = static_cast<uint8_t>(random()),
                  .solicited = bits(1) != 0,
                  .mig_req = bits(1) != 0,
                  .pad_count = static_cast<uint8_t>(bits(3)),
                  .version = static_cast<uint8_t>(bits(0xf)),
                  .pkey = static_cast<uint16_t>(random()),
                  .fecn = bits(1) != 0,
                  .becn = bits(1) != 0,
                  .destination_qpn = {static_cast<uint32_t>(bits(0xffffff))},
                  .ack_request = bits(1) != 0,
                  .psn = Psn(static_cast<uint32_t>(random()))};
    REQUIRE(decode<Bth>(encode(bth)) == bth);
    const AtomicEth eth{random(), {static_cast<uint32_t>(random())}, random(), random()};
    REQUIRE(decode<AtomicEth>(encode(eth)) == eth);
    const Reth reth{random(), {static_cast<uint32_t>(random())}, static_cast<uint32_t>(random())};
    REQUIRE(decode<Reth>(encode(reth)) == reth);
  }
}
