// The pure parts of the ethdev wire: describing an interface, filtering frames, sizing rings.
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>

#include <array>
#include <memory>

#include "datapath/ethdev/description.hpp"
#include "datapath/ethdev/frame_filter.hpp"
#include "datapath/ethdev/ring_geometry.hpp"
#include "datapath/ethdev/route_socket.hpp"
#include "tests/catch.hpp"

using namespace uroce;
using namespace uroce::datapath;

namespace {

constexpr MacAddress kMac = {0x02, 0x00, 0x00, 0x12, 0x34, 0x56};

Gid v6(uint8_t first, uint8_t second, uint8_t last) {
  Gid gid;
  gid.bytes[0] = first;
  gid.bytes[1] = second;
  gid.bytes[15] = last;
  return gid;
}

Interface interface_with(std::vector<Gid> addresses) {
  Interface interface;
  interface.name = "eth7";
  interface.mac = kMac;
  interface.addresses = std::move(addresses);
  return interface;
}

// An unfragmented UDP datagram over IPv4 to port 4791, for kMac.
std::array<std::byte, 64> roce_v4() {
  std::array<std::byte, 64> frame{};
  for (size_t i = 0; i < kMac.size(); ++i) frame[i] = std::byte{kMac[i]};
  frame[12] = std::byte{0x08};
  frame[14] = std::byte{0x45};
  frame[20] = std::byte{0x40};  // don't fragment
  frame[23] = std::byte{17};
  frame[36] = std::byte{4791 >> 8};
  frame[37] = std::byte{4791 & 0xff};
  return frame;
}

std::array<std::byte, 80> roce_v6() {
  std::array<std::byte, 80> frame{};
  for (size_t i = 0; i < kMac.size(); ++i) frame[i] = std::byte{kMac[i]};
  frame[12] = std::byte{0x86};
  frame[13] = std::byte{0xdd};
  frame[14] = std::byte{0x60};
  frame[20] = std::byte{17};
  frame[56] = std::byte{4791 >> 8};
  frame[57] = std::byte{4791 & 0xff};
  return frame;
}

template <size_t N>
bool passes(const std::array<std::byte, N>& frame, uint32_t length = N) {
  return is_roce_for(kMac, Frame{frame.data(), length});
}

struct FreeMessage {
  void operator()(nl_msg* message) const { nlmsg_free(message); }
};
using Message = std::unique_ptr<nl_msg, FreeMessage>;

Message neighbour_message(int type, uint16_t state, const std::vector<uint8_t>& mac) {
  Message message(nlmsg_alloc_simple(type, 0));
  ndmsg header{};
  header.ndm_family = AF_INET;
  header.ndm_ifindex = 9;
  header.ndm_state = state;
  nlmsg_append(message.get(), &header, sizeof(header), NLMSG_ALIGNTO);
  const std::array<uint8_t, 4> address = {10, 0, 0, 7};
  nla_put(message.get(), NDA_DST, address.size(), address.data());
  if (!mac.empty()) nla_put(message.get(), NDA_LLADDR, static_cast<int>(mac.size()), mac.data());
  return message;
}

std::optional<Neighbour> decoded(const Message& message) {
  return decode_neighbour(nlmsg_hdr(message.get()));
}

}  // namespace

TEST_CASE("the node GUID is the EUI-64 of the MAC with the local bit inverted") {
  CHECK(guid_of(kMac) == 0x000000fffe123456);
  CHECK(guid_of({0x00, 0x1b, 0x21, 0xaa, 0xbb, 0xcc}) == 0x021b21fffeaabbcc);
}

TEST_CASE("the path MTU is the largest whose packets fit the interface") {
  CHECK(path_mtu_that_fits(1500) == Mtu::k1024);
  CHECK(path_mtu_that_fits(4200) == Mtu::k4096);
  CHECK(path_mtu_that_fits(9000) == Mtu::k4096);
  CHECK(path_mtu_that_fits(4184) == Mtu::k4096);
  CHECK(path_mtu_that_fits(4183) == Mtu::k2048);
  CHECK(path_mtu_that_fits(344) == Mtu::k256);
  CHECK_FALSE(path_mtu_that_fits(343));
}

TEST_CASE("the GID table begins with link-local IPv6 and IPv4 and goes on in order") {
  const Gid first_v4 = Gid::from_ipv4(10, 0, 0, 1);
  const Gid second_v4 = Gid::from_ipv4(10, 0, 0, 2);
  const Gid global = v6(0xfd, 0x77, 1);
  const Gid link_local = v6(0xfe, 0x80, 9);
  const auto table = gid_table(interface_with({first_v4, global, second_v4, link_local}));
  REQUIRE(table.size() == kGidTableLength);
  CHECK(table[0].gid == link_local);
  CHECK(table[1].gid == first_v4);
  CHECK(table[2].gid == global);
  CHECK(table[3].gid == second_v4);
  CHECK(table[3].netdev == "eth7");
  CHECK(table[4].gid.is_zero());
  CHECK(table[4].netdev.empty());
}

TEST_CASE("an interface without addresses has the default GID of its MAC only") {
  const auto table = gid_table(interface_with({}));
  const Gid expected = {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0x12, 0x34, 0x56}};
  CHECK(table[0].gid == expected);
  CHECK(table[1].gid.is_zero());
}

TEST_CASE("addresses beyond the GID table are left out") {
  std::vector<Gid> many;
  for (uint8_t i = 1; i <= 40; ++i) many.push_back(Gid::from_ipv4(10, 0, 0, i));
  const auto table = gid_table(interface_with(many));
  REQUIRE(table.size() == kGidTableLength);
  CHECK(table[1].gid == many[0]);
  CHECK(table[kGidTableLength - 1].gid == many[kGidTableLength - 2]);
}

TEST_CASE("RoCE frames for our MAC pass the filter") {
  CHECK(passes(roce_v4()));
  CHECK(passes(roce_v6()));
}

TEST_CASE("frames that are not RoCE for us do not pass") {
  const auto broken_v4 = [](size_t at, uint8_t value) {
    auto frame = roce_v4();
    frame[at] = std::byte{value};
    return passes(frame);
  };
  CHECK_FALSE(broken_v4(5, 0x57));   // another MAC
  CHECK_FALSE(broken_v4(12, 0x81));  // VLAN
  CHECK_FALSE(broken_v4(14, 0x46));  // IP options
  CHECK_FALSE(broken_v4(20, 0x20));  // more fragments
  CHECK_FALSE(broken_v4(21, 0x01));  // a later fragment
  CHECK_FALSE(broken_v4(23, 6));     // TCP
  CHECK_FALSE(broken_v4(37, 0xb8));  // port 4792
  const auto broken_v6 = [](size_t at, uint8_t value) {
    auto frame = roce_v6();
    frame[at] = std::byte{value};
    return passes(frame);
  };
  CHECK_FALSE(broken_v6(20, 58));
  CHECK_FALSE(broken_v6(57, 0xb8));
}

TEST_CASE("frames too short for a UDP header do not pass") {
  CHECK(passes(roce_v4(), 42));
  CHECK_FALSE(passes(roce_v4(), 41));
  CHECK(passes(roce_v6(), 62));
  CHECK_FALSE(passes(roce_v6(), 61));
  CHECK_FALSE(passes(roce_v4(), 0));
}

TEST_CASE("ring slots fit the longest frame, in whole pages") {
  for (const uint32_t mtu : {344u, 1500u, 4200u, 9000u, 65535u}) {
    const RingGeometry ring = ring_geometry(mtu);
    const auto path_mtu = bytes_of(*path_mtu_that_fits(mtu));
    CHECK(ring.buffer_bytes >= 62 + transport::kMaxHeaderBytes + path_mtu + 7);
    CHECK(ring.frame_bytes % 16 == 0);
    CHECK(ring.block_bytes % 4096 == 0);
    CHECK(ring.block_bytes % ring.frame_bytes == 0);
    CHECK(ring.frames % (ring.block_bytes / ring.frame_bytes) == 0);
    CHECK(ring.frame_bytes <= 4608);
  }
}

TEST_CASE("a neighbour's MAC counts while the kernel would use it") {
  const std::vector<uint8_t> mac = {2, 0, 0, 0, 0, 7};
  for (const int state : {NUD_PERMANENT, NUD_REACHABLE, NUD_STALE, NUD_DELAY, NUD_PROBE}) {
    const auto usable = decoded(neighbour_message(RTM_NEWNEIGH, static_cast<uint16_t>(state), mac));
    REQUIRE(usable);
    CHECK(usable->address == Gid::from_ipv4(10, 0, 0, 7));
    CHECK(usable->ifindex == 9);
    CHECK(usable->mac == MacAddress{2, 0, 0, 0, 0, 7});
    CHECK(usable->stale == (state == NUD_STALE));
    CHECK_FALSE(usable->failed);
  }
  const auto failed = decoded(neighbour_message(RTM_NEWNEIGH, NUD_FAILED, mac));
  REQUIRE(failed);
  CHECK_FALSE(failed->mac);
  CHECK(failed->failed);
  const auto deleted = decoded(neighbour_message(RTM_DELNEIGH, NUD_REACHABLE, mac));
  REQUIRE(deleted);
  CHECK_FALSE(deleted->mac);
  CHECK_FALSE(deleted->failed);
  const auto incomplete = decoded(neighbour_message(RTM_NEWNEIGH, NUD_INCOMPLETE, {}));
  REQUIRE(incomplete);
  CHECK_FALSE(incomplete->mac);
  const auto long_mac =
      decoded(neighbour_message(RTM_NEWNEIGH, NUD_REACHABLE, {1, 2, 3, 4, 5, 6, 7}));
  REQUIRE(long_mac);
  CHECK_FALSE(long_mac->mac);
  CHECK_FALSE(decoded(neighbour_message(RTM_NEWADDR, NUD_REACHABLE, mac)));
}

TEST_CASE("addresses are written as people write them") {
  CHECK(to_text(Gid::from_ipv4(10, 0, 0, 2)) == "10.0.0.2");
  CHECK(to_text(v6(0xfe, 0x80, 2)) == "fe80::2");
}
