// The headers of every captured packet decode, and encode again to the same bytes.
#include <map>
#include <string_view>

#include "tests/catch.hpp"
#include "tests/golden/pcap.hpp"
#include "tests/golden/reencode.hpp"
#include "transport/packet.hpp"

using namespace uroce;
using namespace uroce::transport;
using uroce::tests::find_roce;
using uroce::tests::Frame;
using uroce::tests::read_pcap;
using uroce::tests::reencode_headers;

namespace {

constexpr const char* kFiles[] = {"rxe-verbs.pcap", "rxe-loss.pcap", "rxe-cm.pcap",
                                  "rxe-cm-reject.pcap"};

// Calls visit(view, transport bytes) for every RoCEv2 packet of the captures; counts them.
template <typename Visit>
size_t for_each_packet(Visit visit) {
  size_t packets = 0;
  for (const char* file : kFiles) {
    for (const Frame& frame : read_pcap(tests::kVectorsFolder + "/" + file)) {
      const auto roce = find_roce(frame);
      if (!roce) continue;
      const auto bytes = roce->transport(frame);
      const auto parsed = parse(bytes);
      CAPTURE(file, packets);
      REQUIRE(std::holds_alternative<PacketView>(parsed));
      visit(std::get<PacketView>(parsed), bytes);
      ++packets;
    }
  }
  return packets;
}

}  // namespace

TEST_CASE("every captured header encodes to the bytes that it was decoded from") {
  const size_t packets =
      for_each_packet([](const PacketView& view, std::span<const std::byte> bytes) {
        const OutgoingPacket packet = reencode_headers(view);
        REQUIRE(packet.header_length == view.opcode->header_bytes);
        REQUIRE(std::equal(bytes.begin(), bytes.begin() + packet.header_length,
                           packet.headers.begin()));
        REQUIRE(packet.header_length + view.payload.size() + packet.pad_length == bytes.size());
      });
  CHECK(packets == 506);
}

TEST_CASE("the captures hold every operation of RC, UC and UD that rdma_rxe sends") {
  std::map<std::string_view, size_t> seen;
  for_each_packet([&seen](const PacketView& view, auto) { ++seen[view.opcode->name]; });
  for (const char* name : {"RC_SEND_FIRST",
                           "RC_SEND_MIDDLE",
                           "RC_SEND_LAST",
                           "RC_SEND_LAST_WITH_IMMEDIATE",
                           "RC_SEND_ONLY",
                           "RC_SEND_ONLY_WITH_IMMEDIATE",
                           "RC_SEND_ONLY_WITH_INVALIDATE",
                           "RC_RDMA_WRITE_FIRST",
                           "RC_RDMA_WRITE_MIDDLE",
                           "RC_RDMA_WRITE_LAST",
                           "RC_RDMA_WRITE_ONLY",
                           "RC_RDMA_READ_REQUEST",
                           "RC_RDMA_READ_RESPONSE_FIRST",
                           "RC_RDMA_READ_RESPONSE_MIDDLE",
                           "RC_RDMA_READ_RESPONSE_LAST",
                           "RC_RDMA_READ_RESPONSE_ONLY",
                           "RC_ACKNOWLEDGE",
                           "RC_ATOMIC_ACKNOWLEDGE",
                           "RC_COMPARE_SWAP",
                           "RC_FETCH_ADD",
                           "UC_SEND_ONLY",
                           "UD_SEND_ONLY",
                           "UD_SEND_ONLY_WITH_IMMEDIATE"}) {
    CAPTURE(name);
    CHECK(seen.contains(name));
  }
}
