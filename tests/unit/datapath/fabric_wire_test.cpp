// The fabric as a wire: frames between two endpoints of one process, and to oneself.
#include "datapath/fabric/fabric_wire.hpp"

#include <algorithm>
#include <thread>

#include "tests/unit/datapath/fabric_fixture.hpp"
#include "tests/unit/datapath/fabric_process.hpp"

namespace uroce::datapath {

namespace {

using Texts = std::vector<std::string>;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kPatience = 10 * kSecond;  // far more than anything takes on an idle machine

// Polls until `done` or patience ends.
template <typename Done>
bool eventually(Done&& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kPatience);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// A process with the second device that answers each frame "x" from slot `peer` with "echo x".
template <typename Say>
void echo(const TemporaryFabric& fabric, uint8_t peer, Say&& say) {
  auto opened = open_fabric_wire(fabric.config, fabric.devices()[1]);
  if (!opened) return say(0);
  Wire& wire = **opened;
  const Qpn back = Qpn::of(peer, 1);
  auto path = wire.open_path(fabric.address(1, 0), back);
  if (!path || !wire.wait_resolved(**path, kPatience)) return say(0);
  say(wire.slot());
  for (;;) {
    const Texts texts = receive_texts(wire);
    for (const std::string& text : texts) (void)send_text(wire, **path, back, "echo " + text);
    wire.flush();
    if (texts.empty()) usleep(100);
  }
}

}  // namespace

TEST_CASE("frames cross between two devices of one process in order") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  auto b = fabric.open(1);
  REQUIRE(a->slot() != b->slot());
  const Qpn to_b = Qpn::of(b->slot(), 7);
  auto path = a->open_path(fabric.address(0, 1), to_b);
  REQUIRE(path);
  REQUIRE(a->wait_resolved(**path, kPatience));
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

TEST_CASE("a wire to a peer that is connected has its path resolved at once") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  auto b = fabric.open(1);
  const Qpn to_b = Qpn::of(b->slot(), 7);
  auto first = a->open_path(fabric.address(0, 1), to_b);
  REQUIRE(a->wait_resolved(**first, kPatience));
  CHECK((*first)->resolved);
  CHECK((*a->open_path(fabric.address(0, 1), to_b))->resolved);
  CHECK((*a->open_path(fabric.address(0, 1), Qpn{}))->resolved);
}

TEST_CASE("a path to an address outside the fabric is refused, naming the fabric's networks") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  transport::AddressVector address = fabric.address(0, 1);
  address.destination_gid = Gid::from_ipv4(10, 1, 2, 3);
  auto outside = a->open_path(address, Qpn::of(2, 1));
  REQUIRE_FALSE(outside.ok());
  CHECK(outside.refusal().error == ENETUNREACH);
  CHECK(outside.refusal().why.find("/24") != std::string::npos);
  address = fabric.address(0, 1);
  address.source_gid = fabric.devices()[0].gids[0].gid;
  auto mixed = a->open_path(address, Qpn::of(2, 1));
  REQUIRE_FALSE(mixed.ok());
  CHECK(mixed.refusal().error == EINVAL);
}

TEST_CASE("frames to nobody are swallowed and counted, and never park the sender") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  for (const Qpn nobody : {Qpn::of(77, 1), Qpn{}, Qpn{1}, Qpn{0xffffff}}) {
    auto path = a->open_path(fabric.address(0, 1), nobody);
    REQUIRE(path);
    (void)a->wait_resolved(**path, kPatience);
    for (int i = 0; i < 1000; ++i) REQUIRE(send_text(*a, **path, nobody, std::string(4000, 'x')));
    a->flush();
  }
  CHECK(a->counters().tx_dropped == 4000);
  CHECK(receive_texts(*a) == Texts{});
}

TEST_CASE("a receiver that does not poll fills its ring, and the sender is told so") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  auto b = fabric.open(1);
  const Qpn to_b = Qpn::of(b->slot(), 7);
  auto path = a->open_path(fabric.address(0, 1), to_b);
  REQUIRE(a->wait_resolved(**path, kPatience));
  size_t sent = 0;
  while (send_text(*a, **path, to_b, std::string(4000, 'x'))) ++sent;
  a->flush();
  CHECK(sent > 200);
  CHECK_FALSE(send_text(*a, **path, to_b, std::string(4000, 'x')));
  CHECK(receive_texts(*b).size() == sent);
  CHECK(send_text(*a, **path, to_b, "more"));
  CHECK(a->counters().tx_dropped == 0);
}

TEST_CASE("what was sent before an orderly end arrives after it") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  auto b = fabric.open(1);
  const Qpn to_b = Qpn::of(b->slot(), 7);
  auto path = a->open_path(fabric.address(0, 1), to_b);
  REQUIRE(a->wait_resolved(**path, kPatience));
  CHECK(send_text(*a, **path, to_b, "last words"));
  a->flush();
  const auto before = std::chrono::steady_clock::now();
  a->close_gracefully(20'000'000);
  CHECK(std::chrono::steady_clock::now() - before >= std::chrono::milliseconds(20));
  a.reset();
  CHECK(receive_texts(*b) == Texts{"last words"});
}

TEST_CASE("an orderly end waits for nobody when everything was consumed") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  auto b = fabric.open(1);
  const Qpn to_b = Qpn::of(b->slot(), 7);
  auto path = a->open_path(fabric.address(0, 1), to_b);
  REQUIRE(a->wait_resolved(**path, kPatience));
  CHECK(send_text(*a, **path, to_b, "x"));
  a->flush();
  CHECK(receive_texts(*b).size() == 1);
  const auto before = std::chrono::steady_clock::now();
  a->close_gracefully(60 * kSecond);
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(30));
  CHECK(list_fabric_holders(fabric.config).value().size() == 1);
}

TEST_CASE("kill -9 of a peer swallows frames to it, and its successor is reached") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  const auto first =
      std::make_unique<ChildProcess>([&](auto say) { echo(fabric, a->slot(), say); });
  const uint8_t slot = first->listen();
  REQUIRE(slot == 2);
  const Qpn to_child = Qpn::of(slot, 1);
  auto path = a->open_path(fabric.address(0, 1), to_child);
  REQUIRE(a->wait_resolved(**path, kPatience));
  CHECK(send_text(*a, **path, to_child, "1"));
  a->flush();
  Texts heard;
  CHECK(eventually([&] { return !(heard = receive_texts(*a)).empty(); }));
  CHECK(heard == Texts{"echo 1"});

  first->kill_now();
  CHECK(eventually([&] {
    (void)send_text(*a, **path, to_child, "lost");
    a->flush();
    return a->counters().tx_dropped != 0;
  }));
  for (int i = 0; i < 1000; ++i) REQUIRE(send_text(*a, **path, to_child, std::string(4000, 'x')));

  // The other 253 slots are older, so that the successor gets the dead one's.
  std::vector<std::unique_ptr<SlotClaim>> others;
  const RunDirectory directory =
      std::move(RunDirectory::open(fabric.config.fabric_directory()).value());
  for (int i = 0; i < 253; ++i) {
    others.push_back(std::move(SlotClaim::claim(directory, "x").value()));
  }
  ChildProcess second([&](auto say) { echo(fabric, a->slot(), say); });
  REQUIRE(second.listen() == slot);
  SECTION("by a new path") {
    auto again = a->open_path(fabric.address(0, 1), to_child);
    CHECK(a->wait_resolved(**again, kPatience));
  }
  SECTION("by sending on") {}
  CHECK(eventually([&] {
    (void)send_text(*a, **path, to_child, "2");
    a->flush();
    heard = receive_texts(*a);
    return !heard.empty();
  }));
  CHECK(heard.front() == "echo 2");
}

TEST_CASE("a peer that is stopped keeps its frames until it goes on") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  ChildProcess child([&](auto say) { echo(fabric, a->slot(), say); });
  const Qpn to_child = Qpn::of(child.listen(), 1);
  auto path = a->open_path(fabric.address(0, 1), to_child);
  REQUIRE(a->wait_resolved(**path, kPatience));
  kill(child.pid(), SIGSTOP);
  CHECK(send_text(*a, **path, to_child, "1"));
  a->flush();
  kill(child.pid(), SIGCONT);
  Texts heard;
  CHECK(eventually([&] { return !(heard = receive_texts(*a)).empty(); }));
  CHECK(heard == Texts{"echo 1"});
}

TEST_CASE("many processes on one device, one killed at a time, reach a common peer") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  constexpr size_t kProcesses = 12;
  std::vector<std::unique_ptr<ChildProcess>> children;
  std::vector<Qpn> qpns;
  for (size_t i = 0; i < kProcesses; ++i) {
    children.push_back(
        std::make_unique<ChildProcess>([&](auto say) { echo(fabric, a->slot(), say); }));
  }
  for (const auto& child : children) qpns.push_back(Qpn::of(child->listen(), 1));
  while (!children.empty()) {
    for (const Qpn to : qpns) {
      auto path = a->open_path(fabric.address(0, 1), to);
      REQUIRE(a->wait_resolved(**path, kPatience));
      REQUIRE(send_text(*a, **path, to, fmt::format("{}", to.value)));
    }
    a->flush();
    Texts heard;
    CHECK(eventually([&] {
      for (std::string& text : receive_texts(*a)) heard.push_back(std::move(text));
      return heard.size() >= qpns.size();
    }));
    std::ranges::sort(heard);
    Texts expected;
    for (const Qpn to : qpns) expected.push_back(fmt::format("echo {}", to.value));
    std::ranges::sort(expected);
    CHECK(heard == expected);
    children.back()->kill_now();
    children.pop_back();
    qpns.pop_back();
  }
  CHECK(a->counters().tx_dropped == 0);
}

TEST_CASE("a forked child lets go of a wire, and its parent's peers notice nothing") {
  TemporaryFabric fabric;
  auto a = fabric.open(0);
  auto b = fabric.open(1);
  const Qpn to_b = Qpn::of(b->slot(), 7);
  auto path = a->open_path(fabric.address(0, 1), to_b);
  REQUIRE(a->wait_resolved(**path, kPatience));
  ChildProcess child([&](auto say) {
    a->abandon_in_child();
    b->abandon_in_child();
    auto own = open_fabric_wire(fabric.config, fabric.devices()[0]);
    say(own.ok() ? (*own)->slot() : 0);
  });
  CHECK(child.listen() == 3);
  CHECK(child.join());
  CHECK(send_text(*a, **path, to_b, "still here"));
  a->flush();
  CHECK(receive_texts(*b) == Texts{"still here"});
  CHECK(a->counters().tx_dropped == 0);
}

TEST_CASE("stale sockets do not block the next holder of a slot") {
  TemporaryFabric fabric;
  for (int i = 0; i < 2; ++i) {
    ChildProcess child([&](auto say) {
      auto wire = open_fabric_wire(fabric.config, fabric.devices()[0]);
      say(wire.ok() ? (*wire)->slot() : 0);
      pause();
    });
    CHECK(child.listen() == 1 + i);
  }
  const RunDirectory directory =
      std::move(RunDirectory::open(fabric.config.fabric_directory()).value());
  std::vector<std::unique_ptr<SlotClaim>> others;
  for (int i = 0; i < 253; ++i) {
    others.push_back(std::move(SlotClaim::claim(directory, "x").value()));
  }
  REQUIRE(faccessat(directory.fd(), "001.sock", F_OK, 0) == 0);
  CHECK(fabric.open(0)->slot() == 1);
}

TEST_CASE("a fabric in a directory with a very long path works") {
  TemporaryFabric fabric;
  for (int i = 0; i < 5; ++i) fabric.config.run_directory += "/" + std::string(40, 'd');
  std::filesystem::create_directories(fabric.config.run_directory);
  auto a = fabric.open(0);
  auto b = fabric.open(1);
  auto path = a->open_path(fabric.address(0, 1), Qpn::of(b->slot(), 7));
  CHECK(a->wait_resolved(**path, kPatience));
}

}  // namespace uroce::datapath
