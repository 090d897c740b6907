// The fabric as a wire: frames between two endpoints of one process, and to oneself.
#include "datapath/fabric/fabric_wire.hpp"

#include "tests/unit/datapath/fabric_fixture.hpp"

namespace uroce::datapath {

namespace {

using Texts = std::vector<std::string>;
constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

TEST_CASE("frames cross between two devices of one process in order") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  auto b = fabric.open(1);
  REQUIRE(a->slot() != b->slot());
  const Qpn to_b = Qpn::of(b->slot(), 7);
  auto path = a->open_path(fabric.address(0, 1), to_b);
  REQUIRE(path);
  REQUIRE(a->wait_resolved(**path, kSecond));
  CHECK(send_text(*a, **path, to_b, "one"));
  CHECK(send_text(*a, **path, to_b, "two"));
  CHECK(receive_texts(*b) == Texts{});
  a->flush();
  CHECK(receive_texts(*b) == Texts{"one", "two"});
  CHECK(receive_texts(*b) == Texts{});
  CHECK(receive_texts(*a) == Texts{});
  CHECK(a->counters().tx_frames == 2);
  CHECK(b->counters().rx_frames == 2);
  CHECK(b->counters().rx_bytes == 2 * (14 + 3));
}

TEST_CASE("frames to one's own slot come back") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  const Qpn self = Qpn::of(a->slot(), 7);
  auto path = a->open_path(fabric.address(0, 0), self);
  REQUIRE(path);
  CHECK((*path)->loopback);
  CHECK((*path)->resolved);
  CHECK(send_text(*a, **path, self, "me"));
  a->flush();
  CHECK(receive_texts(*a) == Texts{"me"});
}

}  // namespace uroce::datapath
