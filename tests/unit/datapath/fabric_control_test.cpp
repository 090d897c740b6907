// The control socket against peers that speak another version, lie, or break their ring.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "datapath/fabric/control_message.hpp"
#include "datapath/fabric/ring_memory.hpp"
#include "datapath/fabric/spsc_ring.hpp"
#include "datapath/log.hpp"
#include "tests/unit/datapath/fabric_fixture.hpp"

namespace uroce::datapath {

namespace {

constexpr int kPatienceMs = 10'000;
using Kind = ControlMessage::Kind;

// A slot whose holder does as the test says, beside a real endpoint of the first device.
struct Stranger {
  Stranger() { log_to(LogLevel::kError, ""); }  // what it provokes is not worth a warning

  TemporaryFabric fabric;
  std::unique_ptr<Wire> wire = fabric.open(0);
  RunDirectory directory = std::move(RunDirectory::open(fabric.config.fabric_directory()).value());
  std::unique_ptr<SlotClaim> claim = std::move(SlotClaim::claim(directory, "stranger").value());
  RingMemory ring = std::move(RingMemory::create(RingLayout::kMinCapacity).value());

  OwnedFd connect_to_wire() {
    OwnedFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto address = directory.socket_address(wire->slot()).value();
    REQUIRE(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return fd;
  }
  OwnedFd listen_as_slot() {
    OwnedFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto address = directory.socket_address(claim->slot()).value();
    REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(fd.get(), 1) == 0);
    return fd;
  }
  ControlMessage hello() {
    ControlMessage message = make_message(Kind::kHello, claim->slot(), claim->generation());
    message.ring_capacity = ring.capacity();
    return message;
  }
};

// The answer, or a refusal; waits for it.
Result<ReceivedMessage> await_message(const OwnedFd& socket) {
  pollfd event{socket.get(), POLLIN, 0};
  REQUIRE(poll(&event, 1, kPatienceMs) == 1);
  return receive_message(socket.get());
}

}  // namespace

TEST_CASE("a HELLO with a ring is welcomed, and frames in the ring arrive") {
  Stranger stranger;
  const OwnedFd socket = stranger.connect_to_wire();
  REQUIRE(send_message(socket.get(), stranger.hello(), stranger.ring.fd()));
  auto answer = await_message(socket);
  REQUIRE(answer);
  CHECK(answer->message.kind == Kind::kWelcome);
  CHECK(answer->message.slot == stranger.wire->slot());
  CHECK(answer->message.build_text() == build_name());
  RingProducer producer(stranger.ring.data(), stranger.ring.capacity());
  std::memset(producer.reserve(20), 'x', 20);
  producer.commit(20);
  producer.publish();
  CHECK(receive_texts(*stranger.wire) == std::vector<std::string>{"xxxxxx"});
  CHECK(producer.drained());
}

TEST_CASE("a HELLO of another version is answered by a refusal that names ours") {
  Stranger stranger;
  const OwnedFd socket = stranger.connect_to_wire();
  ControlMessage hello = stranger.hello();
  hello.protocol_version = kFabricProtocolVersion + 1;
  REQUIRE(send_message(socket.get(), hello, stranger.ring.fd()));
  auto answer = await_message(socket);
  REQUIRE(answer);
  CHECK(answer->message.kind == Kind::kRefused);
  CHECK(answer->message.protocol_version == kFabricProtocolVersion);
  CHECK(answer->message.build_text() == build_name());
  auto end = await_message(socket);
  REQUIRE_FALSE(end);
  CHECK(end.refusal().error == ECONNRESET);
}

TEST_CASE("a refusal of another version names both versions") {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  const OwnedFd here(pair[0]), there(pair[1]);
  ControlMessage message = make_message(Kind::kWelcome, 1, 1);
  message.protocol_version = 42;
  std::strcpy(message.build, "uroce 9.9");
  REQUIRE(send_message(there.get(), message, -1));
  auto received = receive_message(here.get());
  REQUIRE_FALSE(received);
  CHECK(received.refusal().error == EPROTO);
  for (const std::string& part :
       {std::string("42"), std::string("uroce 9.9"), std::string(build_name())}) {
    CHECK(received.refusal().why.find(part) != std::string::npos);
  }
}

TEST_CASE("a peer that welcomes with another version is no peer") {
  Stranger stranger;
  const OwnedFd listener = stranger.listen_as_slot();
  auto path =
      stranger.wire->open_path(stranger.fabric.address(0, 1), Qpn::of(stranger.claim->slot(), 1));
  REQUIRE(path);
  CHECK_FALSE((*path)->resolved);
  const OwnedFd socket(accept(listener.get(), nullptr, nullptr));
  auto hello = await_message(socket);
  REQUIRE(hello);
  CHECK(hello->message.kind == Kind::kHello);
  CHECK(hello->message.slot == stranger.wire->slot());
  CHECK(hello->attached);
  ControlMessage welcome =
      make_message(Kind::kWelcome, stranger.claim->slot(), stranger.claim->generation());
  SECTION("the right version") {
    REQUIRE(send_message(socket.get(), welcome, -1));
    CHECK(stranger.wire->wait_resolved(**path, 10'000'000'000));
  }
  SECTION("another version") {
    welcome.protocol_version = kFabricProtocolVersion + 1;
    REQUIRE(send_message(socket.get(), welcome, -1));
    CHECK_FALSE(stranger.wire->wait_resolved(**path, 10'000'000'000));
  }
  SECTION("another slot") {
    welcome.slot = 99;
    REQUIRE(send_message(socket.get(), welcome, -1));
    CHECK_FALSE(stranger.wire->wait_resolved(**path, 10'000'000'000));
  }
}

TEST_CASE("wrong first messages are refused and disturb nobody") {
  Stranger stranger;
  const OwnedFd socket = stranger.connect_to_wire();
  ControlMessage hello = stranger.hello();
  OwnedFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
  REQUIRE(ftruncate(unsealed.get(),
                    static_cast<off_t>(RingLayout::mapping_bytes(RingLayout::kMinCapacity))) == 0);
  int attached = stranger.ring.fd();
  SECTION("no ring") {
    attached = -1;
  }
  SECTION("a ring that can shrink") {
    attached = unsealed.get();
  }
  SECTION("something that is no memory") {
    attached = socket.get();
  }
  SECTION("a ring of another size") {
    hello.ring_capacity *= 2;
  }
  SECTION("a size that is no power of two") {
    hello.ring_capacity -= 1;
  }
  SECTION("a size that overflows") {
    hello.ring_capacity = ~uint64_t{0} - 4095;
  }
  SECTION("a slot that it does not hold") {
    hello.slot = 200;
    hello.generation = 7;
  }
  SECTION("a slot that does not exist") {
    hello.slot = 100'000;
  }
  SECTION("slot 0") {
    hello.slot = 0;
    hello.generation = 0;
  }
  SECTION("a former generation") {
    hello.generation -= 1;
  }
  SECTION("no HELLO") {
    hello.kind = Kind::kWelcome;
  }
  SECTION("another protocol") {
    hello.magic = 1;
  }
  REQUIRE(send_message(socket.get(), hello, attached));
  auto answer = await_message(socket);
  REQUIRE(answer);
  CHECK(answer->message.kind == Kind::kRefused);
  const OwnedFd good = stranger.connect_to_wire();
  REQUIRE(send_message(good.get(), stranger.hello(), stranger.ring.fd()));
  CHECK(await_message(good)->message.kind == Kind::kWelcome);
}

TEST_CASE("a broken ring costs its producer's frames only, and is counted once") {
  Stranger stranger;
  auto other = stranger.fabric.open(1);
  const Qpn to_wire = Qpn::of(stranger.wire->slot(), 1);
  auto path = other->open_path(stranger.fabric.address(1, 0), to_wire);
  REQUIRE(other->wait_resolved(**path, 10'000'000'000));
  const OwnedFd socket = stranger.connect_to_wire();
  REQUIRE(send_message(socket.get(), stranger.hello(), stranger.ring.fd()));
  REQUIRE(await_message(socket));
  const uint32_t bad_length = 0x12345678;
  std::memcpy(stranger.ring.data() + RingLayout::kDataOffset, &bad_length, sizeof bad_length);
  for (int i = 0; i < 3; ++i) CHECK(receive_texts(*stranger.wire).empty());
  CHECK(stranger.wire->counters().rx_corrupt == 1);
  CHECK(send_text(*other, **path, to_wire, "fine"));
  other->flush();
  CHECK(receive_texts(*stranger.wire) == std::vector<std::string>{"fine"});
}

TEST_CASE("a consumer with an impossible index makes its sender swallow, not wait") {
  Stranger stranger;
  const OwnedFd listener = stranger.listen_as_slot();
  const Qpn to_stranger = Qpn::of(stranger.claim->slot(), 1);
  auto path = stranger.wire->open_path(stranger.fabric.address(0, 1), to_stranger);
  const OwnedFd socket(accept(listener.get(), nullptr, nullptr));
  auto hello = await_message(socket);
  auto ring = RingMemory::attach(hello->attached.get(), hello->message.ring_capacity);
  REQUIRE(ring);
  REQUIRE(send_message(
      socket.get(),
      make_message(Kind::kWelcome, stranger.claim->slot(), stranger.claim->generation()), -1));
  REQUIRE(stranger.wire->wait_resolved(**path, 10'000'000'000));
  const uint64_t impossible = ~uint64_t{0};
  std::memcpy(ring->data() + RingLayout::kConsumedOffset, &impossible, sizeof impossible);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(send_text(*stranger.wire, **path, to_stranger, std::string(4000, 'x')));
  }
  CHECK(stranger.wire->counters().tx_dropped > 0);
  CHECK(stranger.wire->counters().rx_corrupt == 1);
}

}  // namespace uroce::datapath
