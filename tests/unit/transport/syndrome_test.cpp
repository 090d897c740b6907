// AETH syndromes, credit codes and timer codes, exhaustively.
#include "transport/syndrome.hpp"

#include "tests/catch.hpp"

using namespace uroce::transport;

TEST_CASE("the top three bits of a syndrome tell its kind") {
  for (unsigned syndrome = 0; syndrome < 256; ++syndrome) {
    const auto code = static_cast<uint8_t>(syndrome);
    CAPTURE(syndrome);
    CHECK(aeth_value(code) == (syndrome & 31));
    const AethKind kind = aeth_kind(code);
    CHECK((kind == AethKind::kAck) == (syndrome < 0x20));
    CHECK((kind == AethKind::kRnrNak) == (syndrome >= 0x20 && syndrome < 0x40));
    CHECK((kind == AethKind::kNak) == (syndrome >= 0x60 && syndrome < 0x80));
  }
  CHECK(aeth_kind(0x40) == AethKind::kReserved);
  CHECK(aeth_kind(0x80) == AethKind::kReserved);
  CHECK(aeth_kind(0xe0) == AethKind::kReserved);
}

TEST_CASE("syndromes are composed as the specification prints them") {
  CHECK(ack_syndrome() == 0x1f);
  CHECK(ack_syndrome(5) == 0x05);
  CHECK(rnr_nak_syndrome(12) == 0x2c);
  CHECK(nak_syndrome(NakCode::kSequenceError) == 0x60);
  CHECK(nak_syndrome(NakCode::kInvalidRequest) == 0x61);
  CHECK(nak_syndrome(NakCode::kRemoteAccessError) == 0x62);
  CHECK(nak_syndrome(NakCode::kRemoteOperationalError) == 0x63);
  CHECK(nak_syndrome(NakCode::kInvalidRdRequest) == 0x64);
}

TEST_CASE("a credit code stands for the greatest count that it does not exceed") {
  CHECK(credits_of(0) == 0);
  CHECK(credits_of(4) == 4);
  CHECK(credits_of(5) == 6);
  CHECK(credits_of(30) == 32768);
  for (uint8_t code = 0; code < kNoCreditLimit; ++code) {
    CHECK(credit_code_of(credits_of(code)) == code);
    if (code > 0) CHECK(credits_of(code) > credits_of(static_cast<uint8_t>(code - 1)));
    if (code > 4) CHECK(credit_code_of(credits_of(code) - 1) == code - 1);
  }
  CHECK(credit_code_of(0xffffffff) == 30);  // never the code that means no limit
}

TEST_CASE("RNR timer code 0 is the longest, the others grow from 0.01 to 491.52 ms") {
  CHECK(rnr_timer_ns(0) == 655'360'000);
  CHECK(rnr_timer_ns(1) == 10'000);
  CHECK(rnr_timer_ns(12) == 640'000);
  CHECK(rnr_timer_ns(14) == 1'280'000);
  CHECK(rnr_timer_ns(31) == 491'520'000);
  for (uint8_t code = 2; code < 32; ++code) {
    CHECK(rnr_timer_ns(code) > rnr_timer_ns(static_cast<uint8_t>(code - 1)));
  }
  CHECK(rnr_timer_ns(0x20) == rnr_timer_ns(0));  // only five bits count
}

TEST_CASE("the ACK timeout is 4.096 us shifted by its code, and code 0 is never") {
  CHECK(ack_timeout_ns(0) == 0);
  CHECK(ack_timeout_ns(1) == 8'192);
  CHECK(ack_timeout_ns(14) == 67'108'864);
  CHECK(ack_timeout_ns(31) == int64_t{4096} << 31);
}
