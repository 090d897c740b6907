// PROTOCOL.md 16 to 24: what the responder executes, refuses and answers.
#include <cstring>

#include "tests/catch.hpp"
#include "tests/unit/transport/two_hcas.hpp"

using namespace uroce;
using namespace uroce::transport;
using namespace uroce::transport::test;

namespace {

// A request packet as a client of its own making would send it.
class Forge {
 public:
  Forge(TwoHcas& t, uint8_t opcode, uint32_t psn, bool ack = false) : t_(t) {
    bth_.opcode = opcode;
    bth_.psn = Psn(psn);
    bth_.ack_request = ack;
    bth_.destination_qpn = t.server.qp->qpn();
  }
  Forge& reth(uint64_t address, uint32_t length, uint32_t key) {
    return header(Reth{address, {key}, length});
  }
  Forge& reth(size_t offset, uint32_t length) {
    return reth(reinterpret_cast<uint64_t>(t_.server_memory.data()) + offset, length,
                t_.server_key.value);
  }
  Forge& atomic(size_t offset, uint64_t add) {
    return header(AtomicEth{reinterpret_cast<uint64_t>(t_.server_memory.data()) + offset,
                            {t_.server_key.value},
                            add,
                            0});
  }
  Forge& immediate() {
    body_.resize(body_.size() + kImmediateSize);
    return *this;
  }
  Forge& payload(size_t length, uint8_t fill = 1) {
    body_.insert(body_.end(), length, std::byte{fill});
    bth_.pad_count = pad_for(static_cast<uint32_t>(length));
    body_.resize(body_.size() + bth_.pad_count);
    return *this;
  }
  Forge& to_pkey(uint16_t pkey) {
    bth_.pkey = pkey;
    return *this;
  }
  Forge& to_qpn(uint32_t qpn) {
    bth_.destination_qpn = {qpn};
    return *this;
  }
  Frame frame() const {
    Frame frame{.from_client = true, .bytes = std::vector<std::byte>(Bth::kSize + body_.size())};
    bth_.encode(HeaderRoom<Bth::kSize>(frame.bytes.data(), Bth::kSize));
    std::copy(body_.begin(), body_.end(), frame.bytes.begin() + Bth::kSize);
    return frame;
  }
  void send() { t_.deliver(frame()); }

 private:
  template <typename Header>
  Forge& header(const Header& value) {
    const size_t at = body_.size();
    body_.resize(at + Header::kSize);
    value.encode(HeaderRoom<Header::kSize>(body_.data() + at, Header::kSize));
    return *this;
  }

  TwoHcas& t_;
  Bth bth_;
  std::vector<std::byte> body_;
};

// What the server sends now; the frames are taken off the link.
Transcript answers(TwoHcas& t) {
  Transcript transcript;
  while (t.server.hca.poll_transmit(t.server, 64, t.now) != 0) {
  }
  while (!t.link.empty()) transcript.push_back(describe(t.take()));
  return transcript;
}

uint64_t drops(const Side& side, DropReason reason) {
  return side.hca.counters().drops[static_cast<size_t>(reason)];
}

}  // namespace

TEST_CASE("16: one sequence NAK per gap, with the expected PSN; then silence") {
  TwoHcas t;
  Forge(t, opcode::kWriteOnly, 100).reth(0, 8).payload(8).send();
  Forge(t, opcode::kWriteOnly, 102).reth(0, 8).payload(8).send();
  Forge(t, opcode::kWriteOnly, 103, true).reth(0, 8).payload(8).send();
  CHECK(answers(t) == Transcript{"< NAK(0) 101"});
  Forge(t, opcode::kWriteOnly, 104, true).reth(0, 8).payload(8).send();
  CHECK(answers(t).empty());
  CHECK(drops(t.server, DropReason::kOutOfSequence) == 2);
  Forge(t, opcode::kWriteOnly, 101, true).reth(0, 8).payload(8).send();
  CHECK(answers(t) == Transcript{"< ACK 101"});
  Forge(t, opcode::kWriteOnly, 103).reth(0, 8).payload(8).send();
  CHECK(answers(t) == Transcript{"< NAK(0) 102"});
}

TEST_CASE("16: out-of-sequence packets are not executed") {
  TwoHcas t;
  Forge(t, opcode::kWriteOnly, 101).reth(0, 8).payload(8, 9).send();
  CHECK(t.server_memory[0] == std::byte{0});
}

TEST_CASE("ACKs of one burst are coalesced, and none is sent that nobody asked for") {
  TwoHcas t;
  for (uint32_t psn = 100; psn < 110; ++psn) {
    Forge(t, opcode::kWriteOnly, psn, psn != 109).reth(0, 8).payload(8).send();
  }
  CHECK(answers(t) == Transcript{"< ACK 109"});
  Forge(t, opcode::kWriteOnly, 110).reth(0, 8).payload(8).send();
  CHECK(answers(t).empty());
}

TEST_CASE("17: a duplicate SEND or WRITE is acknowledged with the newest PSN, not executed again") {
  TwoHcas t;
  REQUIRE(t.post_receive(64, 1) == PostError::kNone);
  REQUIRE(t.post_receive(64, 2) == PostError::kNone);
  Forge(t, opcode::kSendOnly, 100, true).payload(8, 3).send();
  Forge(t, opcode::kWriteOnly, 101, true).reth(64, 8).payload(8, 4).send();
  Forge(t, opcode::kWriteOnly, 102, true).reth(64, 8).payload(8, 5).send();
  CHECK(answers(t) == Transcript{"< ACK 102"});
  Forge(t, opcode::kSendOnly, 100, true).payload(8, 7).send();
  CHECK(answers(t) == Transcript{"< ACK 102"});
  Forge(t, opcode::kWriteOnly, 101).reth(64, 8).payload(8, 7).send();
  CHECK(answers(t) == Transcript{"< ACK 102"});
  CHECK(t.server.poll().size() == 1);
  CHECK(t.server_memory[0] == std::byte{3});
  CHECK(t.server_memory[64] == std::byte{5});
  CHECK(t.server.hca.counters().duplicate_request == 2);
}

TEST_CASE("17: a duplicate ATOMIC is answered from what was saved") {
  TwoHcas t;
  Forge(t, opcode::kFetchAdd, 100).atomic(0, 5).send();
  Forge(t, opcode::kFetchAdd, 101).atomic(0, 5).send();
  CHECK(answers(t).size() == 2);
  Forge(t, opcode::kFetchAdd, 101).atomic(0, 5).send();
  t.server.hca.poll_transmit(t.server, 64, t.now);
  const Frame again = t.take();
  CHECK(describe(again) == "< ATOMIC_ACKNOWLEDGE 101");
  CHECK(again.view().atomic_ack_eth.original == 5);
  CHECK(t.server_memory[0] == std::byte{10});
}

TEST_CASE("17: a duplicate ATOMIC that is not remembered is dropped in silence") {
  TwoHcas t({.max_rd_atomic = 2});
  for (uint32_t psn = 100; psn < 103; ++psn) {
    Forge(t, opcode::kFetchAdd, psn).atomic(0, 5).send();
    CHECK(answers(t).size() == 1);
  }
  Forge(t, opcode::kFetchAdd, 100).atomic(0, 5).send();
  CHECK(answers(t).empty());
  CHECK(drops(t.server, DropReason::kDuplicateAtomicNotFound) == 1);
  CHECK(t.server_memory[0] == std::byte{15});
}

TEST_CASE("17: a duplicate READ of a part of the original range is executed again") {
  TwoHcas t;
  Forge(t, opcode::kReadRequest, 100).reth(1000, 600).send();
  CHECK(answers(t).size() == 3);
  Forge(t, opcode::kReadRequest, 101).reth(1256, 344).send();
  CHECK(answers(t) ==
        Transcript{"< RDMA_READ_RESPONSE_FIRST 101 256B", "< RDMA_READ_RESPONSE_LAST 102 88B"});
  Forge(t, opcode::kReadRequest, 102).reth(1512, 88).send();
  CHECK(answers(t) == Transcript{"< RDMA_READ_RESPONSE_ONLY 102 88B"});
}

TEST_CASE("17: a duplicate READ outside the original range or of another key is dropped") {
  TwoHcas t;
  const uint64_t base = reinterpret_cast<uint64_t>(t.server_memory.data());
  Forge(t, opcode::kReadRequest, 100).reth(1000, 600).send();
  CHECK(answers(t).size() == 3);
  Forge(t, opcode::kReadRequest, 100).reth(999, 600).send();
  Forge(t, opcode::kReadRequest, 100).reth(1000, 601).send();
  Forge(t, opcode::kReadRequest, 102).reth(1000, 600).send();  // more PSNs than it had
  Forge(t, opcode::kReadRequest, 100).reth(base + 1000, 600, t.server_key.value + 1).send();
  Forge(t, opcode::kReadRequest, 100).reth(~uint64_t{0}, 600, t.server_key.value).send();
  Forge(t, opcode::kReadRequest, 100).reth(base + 1001, 0xffffffff, t.server_key.value).send();
  Forge(t, opcode::kReadRequest, 99).reth(1000, 600).send();  // never asked
  Forge(t, opcode::kFetchAdd, 100).atomic(0, 5).send();       // was a READ
  CHECK(answers(t).empty());
  CHECK(drops(t.server, DropReason::kDuplicateRejected) == 7);
  CHECK(t.server.qp->state() == QpState::kRts);
}

TEST_CASE("17: a duplicate READ restarts a response in progress only when it must") {
  TwoHcas t;
  Forge(t, opcode::kReadRequest, 100).reth(0, 768).send();
  t.server.room = 2;
  CHECK(answers(t).size() == 2);
  Forge(t, opcode::kReadRequest, 102).reth(512, 256).send();  // comes anyway
  Forge(t, opcode::kReadRequest, 101).reth(256, 512).send();
  t.server.room = 100;
  CHECK(answers(t) ==
        Transcript{"< RDMA_READ_RESPONSE_FIRST 101 256B", "< RDMA_READ_RESPONSE_LAST 102 256B"});
}

TEST_CASE("17: a duplicate READ that was answered does not stand in the way of the next READ") {
  TwoHcas t({.max_rd_atomic = 1});
  Forge(t, opcode::kReadRequest, 100).reth(0, 8).send();
  CHECK(answers(t) == Transcript{"< RDMA_READ_RESPONSE_ONLY 100 8B"});
  // The link repeats the request; the client has its answer and goes on, in the same burst.
  Forge(t, opcode::kReadRequest, 100).reth(0, 8).send();
  Forge(t, opcode::kReadRequest, 101).reth(8, 8).send();
  CHECK(answers(t) == Transcript{"< RDMA_READ_RESPONSE_ONLY 101 8B"});
  CHECK(t.server.qp->state() == QpState::kRts);
}

TEST_CASE("17: a late copy of an answered READ whose region is gone is dropped, and the QP lives") {
  TwoHcas t;
  const Frame request = Forge(t, opcode::kReadRequest, 100).reth(0, 600).frame();
  t.deliver(request);
  CHECK(answers(t).size() == 3);
  REQUIRE(t.server.hca.deregister_region(t.server_key).ok());
  t.deliver(request);
  CHECK(answers(t).empty());
  CHECK(drops(t.server, DropReason::kDuplicateRejected) == 1);
  CHECK(t.server.qp->state() == QpState::kRts);
}

TEST_CASE("18: zero-length READ and WRITE ignore R_Key and address") {
  TwoHcas t;
  Forge(t, opcode::kWriteOnly, 100, true).reth(~uint64_t{0}, 0, 0xdead).send();
  CHECK(answers(t) == Transcript{"< ACK 100"});
  Forge(t, opcode::kReadRequest, 101).reth(~uint64_t{0}, 0, 0xdead).send();
  CHECK(answers(t) == Transcript{"< RDMA_READ_RESPONSE_ONLY 101 0B"});
}

TEST_CASE("18: ATOMICs need 8-byte alignment") {
  for (size_t offset = 0; offset < 9; ++offset) {
    TwoHcas t;
    Forge(t, opcode::kCompareSwap, 100).atomic(offset, 0).send();
    const bool aligned = offset % 8 == 0;
    CHECK(answers(t) == Transcript{aligned ? "< ATOMIC_ACKNOWLEDGE 100" : "< NAK(1) 100"});
    CHECK(t.server.events.size() == (aligned ? 0 : 1));
  }
}

TEST_CASE("19: an R_Key violation is NAKed and raises QP_ACCESS_ERR") {
  for (const uint8_t code : {opcode::kWriteOnly, opcode::kReadRequest, opcode::kWriteFirst}) {
    CAPTURE(int(code));
    TwoHcas t;
    REQUIRE(t.post_receive(64, 1) == PostError::kNone);
    Forge forge(t, code, 100);
    const size_t payload = code == opcode::kReadRequest ? 0 : code == opcode::kWriteFirst ? 256 : 8;
    forge.reth(t.server_memory.size() - 4, code == opcode::kWriteFirst ? 300 : 8).payload(payload);
    forge.send();
    CHECK(answers(t) == Transcript{"< NAK(2) 100"});
    REQUIRE(t.server.events.size() == 1);
    CHECK(t.server.events[0].type == AsyncEventType::kQpAccessError);
    CHECK(t.server.qp->state() == QpState::kError);
    const auto flushed = t.server.poll();
    REQUIRE(flushed.size() == 1);
    CHECK(flushed[0].status == CompletionStatus::kWrFlushError);
    CHECK(t.server.hca.counters().resp_remote_access_errors == 1);
  }
}

TEST_CASE("19: a WRITE_WITH_IMM with a bad R_Key completes its receive WQE in error") {
  TwoHcas t;
  REQUIRE(t.post_receive(64, 1) == PostError::kNone);
  REQUIRE(t.post_receive(64, 2) == PostError::kNone);
  Forge(t, opcode::kWriteOnlyImm, 100).reth(1u << 20, 8).immediate().payload(8).send();
  CHECK(answers(t) == Transcript{"< NAK(2) 100"});
  CHECK(t.server.events.empty());
  const auto done = t.server.poll();
  REQUIRE(done.size() == 2);
  CHECK(done[0].status == CompletionStatus::kLocalAccessError);
  CHECK(done[0].wr_id == 1);
  CHECK(done[1].status == CompletionStatus::kWrFlushError);
}

TEST_CASE("20: a receive buffer that is too small is NAKed and completes with LOC_LEN_ERR") {
  TwoHcas t;
  REQUIRE(t.post_receive(300, 1) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kSend, 301) == PostError::kNone);
  t.run();
  CHECK(t.client.poll().at(0).status == CompletionStatus::kRemoteInvalidRequestError);
  CHECK(t.server.poll().at(0).status == CompletionStatus::kLocalLengthError);
  CHECK(t.server.qp->state() == QpState::kError);
  CHECK(t.client.qp->state() == QpState::kError);
}

TEST_CASE("20: a receive buffer that may not be written is NAKed, never filled with garbage") {
  TwoHcas t;
  std::vector<std::byte> memory(64);
  const Lkey read_only = t.server.register_memory(memory, kRemoteRead);
  const Sge piece = TwoHcas::sge(memory, read_only, 0, 64);
  REQUIRE(t.server.qp->post_recv({.wr_id = 1, .sges = {&piece, 1}}) == PostError::kNone);
  t.client_memory[0] = std::byte{1};
  REQUIRE(t.post(SendOpcode::kSend, 8) == PostError::kNone);
  CHECK(t.run() == Transcript{"> SEND_ONLY 100 8B ack", "< NAK(3) 100"});
  CHECK(t.client.poll().at(0).status == CompletionStatus::kRemoteOperationError);
  CHECK(t.server.poll().at(0).status == CompletionStatus::kLocalProtectionError);
  CHECK(memory[0] == std::byte{0});
}

TEST_CASE("21: RECV_RDMA_WITH_IMM reports the RETH length; a READ counts in the MSN at once") {
  TwoHcas t;
  REQUIRE(t.post_receive(0, 1) == PostError::kNone);
  REQUIRE(t.post(SendOpcode::kRdmaWriteWithImm, 700) == PostError::kNone);
  t.run();
  CHECK(t.server.poll().at(0).byte_length == 700);
  Forge(t, opcode::kReadRequest, 103).reth(0, 700).send();
  Forge(t, opcode::kWriteFirst, 106).reth(0, 300).payload(256).send();
  Forge(t, opcode::kWriteFirst, 106).reth(0, 300).payload(256).send();  // a duplicate: an ACK
  t.server.hca.poll_transmit(t.server, 64, t.now);
  t.server.hca.poll_transmit(t.server, 64, t.now);
  REQUIRE(t.link.size() == 4);
  CHECK(t.link[0].view().aeth.msn == 2);
  CHECK(t.link[3].view().aeth.msn == 2);  // the WRITE has not ended
}

TEST_CASE("23: acknowledgements carry no credit limit") {
  TwoHcas t;
  REQUIRE(t.post(SendOpcode::kRdmaWrite, 8) == PostError::kNone);
  t.client.hca.poll_transmit(t.client, 64, t.now);
  t.deliver(t.take());
  t.server.hca.poll_transmit(t.server, 64, t.now);
  CHECK(t.take().view().aeth.syndrome == 0x1f);
}

TEST_CASE("24: ranges that wrap around 2^64 are refused") {
  for (const uint8_t code : {opcode::kWriteOnly, opcode::kReadRequest}) {
    TwoHcas t;
    Forge forge(t, code, 100);
    forge.reth(~uint64_t{0} - 3, 8, t.server_key.value);
    if (code == opcode::kWriteOnly) forge.payload(8);
    forge.send();
    CHECK(answers(t) == Transcript{"< NAK(2) 100"});
  }
}

TEST_CASE("messages whose packets do not follow each other are NAKed as invalid") {
  struct Case {
    uint8_t first;
    uint8_t second;
  };
  const Case cases[] = {
      {opcode::kSendFirst, opcode::kSendOnly},     {opcode::kSendFirst, opcode::kWriteMiddle},
      {opcode::kWriteFirst, opcode::kSendLast},    {opcode::kWriteFirst, opcode::kWriteOnly},
      {opcode::kWriteFirst, opcode::kReadRequest}, {opcode::kSendFirst, opcode::kFetchAdd},
      {opcode::kSendOnly, opcode::kSendMiddle},    {opcode::kSendOnly, opcode::kWriteLast}};
  for (const Case& each : cases) {
    CAPTURE(int(each.first), int(each.second));
    TwoHcas t;
    REQUIRE(t.post_receive(4096) == PostError::kNone);
    Forge first(t, each.first, 100);
    if (each.first == opcode::kWriteFirst) first.reth(0, 600);
    first.payload(256).send();
    Forge second(t, each.second, 101);
    if (kOpcodes[each.second].has(kRethFlag)) second.reth(0, 256);
    if (kOpcodes[each.second].has(kAtomicEthFlag)) second.atomic(0, 1);
    if (kOpcodes[each.second].carries_payload) second.payload(256);
    second.send();
    CHECK(answers(t) == Transcript{"< NAK(1) 101"});
    CHECK(t.server.qp->state() == QpState::kError);
  }
}

TEST_CASE("illegal lengths are NAKed as invalid") {
  struct Case {
    uint8_t opcode;
    uint32_t dma_length;
    size_t payload;
  };
  const Case cases[] = {{opcode::kSendFirst, 0, 255},       {opcode::kSendOnly, 0, 257},
                        {opcode::kWriteOnly, 9, 8},         {opcode::kWriteOnly, 7, 8},
                        {opcode::kWriteFirst, 256, 256},    {opcode::kWriteFirst, 600, 255},
                        {opcode::kWriteOnly, 0x80000001, 8}};
  for (const Case& each : cases) {
    CAPTURE(int(each.opcode), each.dma_length, each.payload);
    TwoHcas t;
    REQUIRE(t.post_receive(4096) == PostError::kNone);
    Forge forge(t, each.opcode, 100);
    if (each.opcode >= opcode::kWriteFirst) forge.reth(0, each.dma_length);
    forge.payload(each.payload).send();
    CHECK(answers(t) == Transcript{"< NAK(1) 100"});
  }
  TwoHcas t;
  Forge(t, opcode::kReadRequest, 100).reth(0, 0x80000001).send();
  CHECK(answers(t) == Transcript{"< NAK(1) 100"});
}

TEST_CASE("an empty LAST, and a WRITE longer or shorter than its RETH says, are NAKed") {
  for (const size_t last : {size_t{0}, size_t{43}, size_t{45}}) {
    TwoHcas t;
    Forge(t, opcode::kWriteFirst, 100).reth(0, 300).payload(256).send();
    Forge(t, opcode::kWriteLast, 101).payload(last).send();
    CHECK(answers(t) == Transcript{"< NAK(1) 101"});
    CHECK(t.server.events.at(0).type == AsyncEventType::kQpRequestError);
  }
  TwoHcas t;
  Forge(t, opcode::kWriteFirst, 100).reth(0, 512).payload(256).send();
  Forge(t, opcode::kWriteMiddle, 101).payload(256).send();
  CHECK(answers(t) == Transcript{"< NAK(1) 101"});
}

TEST_CASE("operations that the queue pair does not permit are NAKed as invalid") {
  TwoHcas write({.access = kLocalWrite});
  Forge(write, opcode::kWriteOnly, 100).reth(0, 8).payload(8).send();
  CHECK(answers(write) == Transcript{"< NAK(1) 100"});
  TwoHcas read({.access = kLocalWrite | kRemoteWrite});
  Forge(read, opcode::kReadRequest, 100).reth(0, 8).send();
  CHECK(answers(read) == Transcript{"< NAK(1) 100"});
  TwoHcas atomic({.access = kLocalWrite | kRemoteRead});
  Forge(atomic, opcode::kFetchAdd, 100).atomic(0, 8).send();
  CHECK(answers(atomic) == Transcript{"< NAK(1) 100"});
}

TEST_CASE("more READs at once than max_dest_rd_atomic are NAKed as invalid, after the others") {
  TwoHcas t({.max_rd_atomic = 2});
  for (uint32_t psn = 100; psn < 103; ++psn) {
    Forge(t, opcode::kReadRequest, psn).reth(0, 8).send();
  }
  CHECK(answers(t) == Transcript{"< RDMA_READ_RESPONSE_ONLY 100 8B",
                                 "< RDMA_READ_RESPONSE_ONLY 101 8B", "< NAK(1) 102"});
}

TEST_CASE("an acknowledgement waits for the READ responses before it") {
  TwoHcas t;
  Forge(t, opcode::kReadRequest, 100).reth(0, 600).send();
  Forge(t, opcode::kWriteOnly, 103, true).reth(0, 8).payload(8).send();
  t.server.room = 2;
  CHECK(answers(t).size() == 2);
  t.server.room = 9;
  CHECK(answers(t) == Transcript{"< RDMA_READ_RESPONSE_LAST 102 88B", "< ACK 103"});
}

TEST_CASE("packets that are not the connection's are dropped with a reason") {
  TwoHcas t;
  const Frame good = Forge(t, opcode::kWriteOnly, 100, true).reth(0, 8).payload(8).frame();
  const PacketView view = good.view();
  t.server.hca.on_packet(view, {Gid::from_ipv4(127, 0, 0, 9), t.server.gid, false}, t.now);
  CHECK(drops(t.server, DropReason::kWrongSource) == 1);
  Forge(t, opcode::kWriteOnly, 100).to_pkey(0x1234).reth(0, 8).payload(8).send();
  CHECK(drops(t.server, DropReason::kPkeyMismatch) == 1);
  const uint32_t stranger = t.server.qp->qpn().value ^ 0x100;
  Forge(t, opcode::kWriteOnly, 100).to_qpn(stranger).reth(0, 8).payload(8).send();
  CHECK(drops(t.server, DropReason::kUnknownQpn) == 1);
  Forge(t, 0x20 | opcode::kSendOnly, 100).payload(8).send();
  CHECK(drops(t.server, DropReason::kWrongService) == 1);
  CHECK(answers(t).empty());
  Forge(t, opcode::kWriteOnly, 100, true).to_pkey(0x7fff).reth(0, 8).payload(8).send();
  CHECK(answers(t) == Transcript{"< ACK 100"});
}

TEST_CASE("the first packet in RTR raises COMM_EST, once") {
  TwoHcas t;
  QueuePair* qp = TwoHcas::create(t.server, {});
  QpAttributes attributes = TwoHcas::attributes_of(t.server, t.client, t.client.qp->qpn(), {});
  attributes.rq_psn = Psn(100);
  attributes.state = QpState::kInit;
  REQUIRE(t.server.hca.modify_qp(*qp, attributes, TwoHcas::kToInit, t.now).ok());
  const auto send = [&](uint32_t psn) {
    Forge(t, opcode::kWriteOnly, psn).to_qpn(qp->qpn().value).reth(0, 8).payload(8).send();
  };
  send(100);
  CHECK(drops(t.server, DropReason::kWrongState) == 1);
  attributes.state = QpState::kRtr;
  REQUIRE(t.server.hca.modify_qp(*qp, attributes, TwoHcas::kToRtr, t.now).ok());
  CHECK(t.server.events.empty());
  send(100);
  send(101);
  REQUIRE(t.server.events.size() == 1);
  CHECK(t.server.events[0].type == AsyncEventType::kCommunicationEstablished);
}
