// Planted faults: each oracle must find the fault that it is there for.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tools/sim/exchange.hpp"
#include "tools/sim/simulation.hpp"
#include "transport/headers.hpp"
#include "transport/opcode.hpp"

namespace uroce::sim {
namespace {

using transport::Completion;

// A run with plenty of every operation and nothing that is supposed to fail.
Scenario plain_scenario() {
  ScenarioOptions options;
  options.seed = 3;
  options.connections = 2;
  options.operations = 60;
  options.mtu = Mtu::k256;
  options.perfect_link = options.no_trouble = true;
  return scenario_of(options);
}

// The violations of the plain run under that fault, joined.
std::string violations_under(const Tamper& tamper) {
  Simulation simulation(plain_scenario(), &tamper);
  std::string all;
  for (const std::string& violation : simulation.run().violations) all += violation + "\n";
  return all;
}

// Offsets in the transport packet.
constexpr size_t kFlagsByte = 1;  // solicited bit, MigReq, pad count
constexpr size_t kPsn = 9;
constexpr size_t kFirstExtension = transport::Bth::kSize;

uint8_t opcode_of(const Frame& frame) {
  return std::to_integer<uint8_t>(frame.bytes[0]);
}
const transport::OpcodeInfo& info_of(const Frame& frame) {
  return transport::kOpcodes[opcode_of(frame)];
}
void add_to_byte(Frame& frame, size_t at, int value) {
  frame.bytes[at] = static_cast<std::byte>(std::to_integer<int>(frame.bytes[at]) + value);
}

void add_to_psn(Frame& frame, int packets) {
  uint32_t psn = 0;
  for (size_t i = kPsn; i < kPsn + 3; ++i)
    psn = psn << 8 | std::to_integer<uint32_t>(frame.bytes[i]);
  psn += static_cast<uint32_t>(packets);
  for (size_t i = kPsn + 3; i-- > kPsn; psn >>= 8) frame.bytes[i] = static_cast<std::byte>(psn);
}

// Changes the first frame for which `concerns` holds, before the oracle of the wire sees it.
Tamper change_first(std::function<bool(const Frame&)> concerns,
                    std::function<void(Frame&)> change) {
  Tamper tamper;
  tamper.before_oracle = [concerns, change, done = false](Frame& frame) mutable {
    if (done || !concerns(frame)) return;
    done = true;
    change(frame);
  };
  return tamper;
}

bool is_request_with_payload(const Frame& frame) {
  return info_of(frame).carries_payload && !info_of(frame).is_response &&
         frame.bytes.size() > size_t{info_of(frame).header_bytes} + 8;
}
bool is_plain_ack(const Frame& frame) {
  return opcode_of(frame) == transport::opcode::kAcknowledge &&
         (frame.bytes[kFirstExtension] >> 5) == std::byte{0};
}

// Changes the first batch of completions for which `change` returns true.
Tamper change_completions(std::function<bool(std::vector<Completion>&)> change) {
  Tamper tamper;
  tamper.on_poll = [change, done = false](std::vector<Completion>& completions) mutable {
    if (!done) done = change(completions);
  };
  return tamper;
}

bool is_receive(const Completion& completion) {
  return completion.wr_id >> 63 != 0;
}

}  // namespace

using Catch::Matchers::Contains;

TEST_CASE("without a fault the plain run passes", "[canary]") {
  CHECK(violations_under({}) == "");
}

TEST_CASE("a payload that is corrupted undetected is found", "[canary]") {
  Tamper tamper;
  tamper.on_wire = [done = false](Frame& frame) mutable {
    if (done || !is_request_with_payload(frame)) return;
    done = true;
    add_to_byte(frame, info_of(frame).header_bytes, 1);
  };
  CHECK(violations_under(tamper) != "");
}

TEST_CASE("a READ response that is corrupted undetected is found", "[canary]") {
  Tamper tamper;
  tamper.on_wire = [done = false](Frame& frame) mutable {
    if (done || info_of(frame).operation != transport::Operation::kReadResponse ||
        frame.bytes.size() < 64) {
      return;
    }
    done = true;
    add_to_byte(frame, info_of(frame).header_bytes, 1);
  };
  CHECK_THAT(violations_under(tamper), Contains("READ wr_id"));
}

TEST_CASE("a duplicated completion is found", "[canary]") {
  CHECK_THAT(violations_under(change_completions([](std::vector<Completion>& all) {
               if (all.empty()) return false;
               all.insert(all.begin(), all.front());
               return true;
             })),
             Contains("the next in order is") || Contains("no operation awaits") ||
                 Contains("no receive is posted"));
}

TEST_CASE("a swallowed completion is found", "[canary]") {
  CHECK_THAT(violations_under(change_completions([](std::vector<Completion>& all) {
               if (all.empty()) return false;
               all.erase(all.begin());
               return true;
             })),
             Contains("the next in order is") || Contains("never completed"));
}

TEST_CASE("completions in the wrong order are found", "[canary]") {
  CHECK_THAT(violations_under(change_completions([](std::vector<Completion>& all) {
               for (size_t i = 0; i + 1 < all.size(); ++i) {
                 if (all[i].qpn != all[i + 1].qpn || is_receive(all[i]) != is_receive(all[i + 1])) {
                   continue;
                 }
                 std::swap(all[i], all[i + 1]);
                 return true;
               }
               return false;
             })),
             Contains("the next in order is"));
}

TEST_CASE("a wrong member of a completion is found", "[canary]") {
  const auto change_receive = [](std::function<void(Completion&)> change) {
    return violations_under(change_completions([change](std::vector<Completion>& all) {
      const auto found = std::find_if(all.begin(), all.end(), is_receive);
      if (found == all.end()) return false;
      change(*found);
      return true;
    }));
  };
  CHECK_THAT(change_receive([](Completion& c) { ++c.byte_length; }), Contains("byte_len must be"));
  CHECK_THAT(change_receive([](Completion& c) { c.opcode = transport::CompletionOpcode::kSend; }),
             Contains("wrong opcode"));
  CHECK_THAT(change_receive([](Completion& c) { c.flags ^= transport::kWithImm; }),
             Contains("flag for an immediate"));
  CHECK_THAT(change_receive(
                 [](Completion& c) { c.status = transport::CompletionStatus::kLocalLengthError; }),
             Contains("nothing explains this failure"));
  CHECK_THAT(
      change_receive([](Completion& c) { c.status = transport::CompletionStatus::kWrFlushError; }),
      Contains("not in ERROR"));
  CHECK_THAT(change_receive([](Completion& c) { c.qpn.value ^= 0x100; }),
             Contains("no such queue pair"));
}

TEST_CASE("a success that is turned into a retry failure is found", "[canary]") {
  CHECK_THAT(violations_under(change_completions([](std::vector<Completion>& all) {
               const auto found = std::find_if_not(all.begin(), all.end(), is_receive);
               if (found == all.end()) return false;
               found->status = transport::CompletionStatus::kRetryExceededError;
               return true;
             })),
             Contains("nothing explains this failure"));
}

TEST_CASE("a write outside every granted region is found", "[canary]") {
  Tamper tamper;
  tamper.after_progress = [done = false](Memory& memory) mutable {
    if (std::exchange(done, true)) return;
    *memory.at(3) ^= std::byte{1};
  };
  CHECK_THAT(violations_under(tamper), Contains("memory of host"));
}

TEST_CASE("a write inside a region, where nothing is under way, is found", "[canary]") {
  Tamper tamper;
  tamper.after_progress = [turns = 0](Memory& memory) mutable {
    if (++turns != 20) return;
    *memory.at(memory.size() / 2) ^= std::byte{1};
  };
  CHECK(violations_under(tamper) != "");
}

TEST_CASE("a request with a wrong header is found", "[canary]") {
  const auto request_starts_with = [](transport::HeaderFlag header) {
    return [header](const Frame& frame) {
      return info_of(frame).has(header) && !info_of(frame).is_response;
    };
  };
  SECTION("PSN") {
    CHECK_THAT(
        violations_under(change_first(is_request_with_payload, [](Frame& f) { add_to_psn(f, 1); })),
        Contains("psn") || Contains("PSN"));
  }
  SECTION("solicited bit") {
    CHECK_THAT(
        violations_under(change_first(is_request_with_payload,
                                      [](Frame& f) { f.bytes[kFlagsByte] ^= std::byte{0x80}; })),
        Contains("solicited bit"));
  }
  SECTION("MigReq") {
    CHECK_THAT(
        violations_under(change_first(is_request_with_payload,
                                      [](Frame& f) { f.bytes[kFlagsByte] ^= std::byte{0x40}; })),
        Contains("MigReq"));
  }
  SECTION("destination") {
    CHECK_THAT(violations_under(change_first(is_request_with_payload,
                                             [](Frame& f) { f.bytes[7] ^= std::byte{1}; })),
               Contains("destination"));
  }
  SECTION("RETH address, key and length") {
    const auto reth = request_starts_with(transport::kRethFlag);
    CHECK_THAT(violations_under(
                   change_first(reth, [](Frame& f) { add_to_byte(f, kFirstExtension + 7, 1); })),
               Contains("RETH: wrong address"));
    CHECK_THAT(violations_under(
                   change_first(reth, [](Frame& f) { add_to_byte(f, kFirstExtension + 8, 1); })),
               Contains("RETH: wrong R_Key"));
    CHECK_THAT(violations_under(
                   change_first(reth, [](Frame& f) { add_to_byte(f, kFirstExtension + 15, 1); })),
               Contains("RETH: wrong length"));
  }
  SECTION("AtomicETH operand") {
    CHECK_THAT(
        violations_under(change_first(request_starts_with(transport::kAtomicEthFlag),
                                      [](Frame& f) { add_to_byte(f, kFirstExtension + 19, 1); })),
        Contains("wrong swap/add operand"));
  }
  SECTION("payload") {
    CHECK_THAT(
        violations_under(change_first(
            is_request_with_payload, [](Frame& f) { add_to_byte(f, info_of(f).header_bytes, 1); })),
        Contains("payload is not what was posted"));
  }
  SECTION("length") {
    CHECK_THAT(violations_under(change_first(is_request_with_payload,
                                             [](Frame& f) { f.bytes.resize(f.bytes.size() - 4); })),
               Contains("bytes of payload, expected"));
  }
  SECTION("opcode") {
    CHECK_THAT(violations_under(change_first(
                   [](const Frame& f) { return opcode_of(f) == transport::opcode::kWriteMiddle; },
                   [](Frame& f) { f.bytes[0] = std::byte{transport::opcode::kSendMiddle}; })),
               Contains("the opcode must be"));
  }
}

TEST_CASE("a response with a wrong header is found", "[canary]") {
  SECTION("an acknowledgement of what has not arrived") {
    CHECK_THAT(violations_under(change_first(is_plain_ack, [](Frame& f) { add_to_psn(f, 100); })),
               Contains("has not arrived"));
  }
  SECTION("MSN") {
    CHECK_THAT(violations_under(change_first(
                   is_plain_ack, [](Frame& f) { add_to_byte(f, kFirstExtension + 3, 100); })),
               Contains("MSN is"));
  }
  SECTION("a NAK without reason") {
    CHECK_THAT(violations_under(change_first(
                   is_plain_ack, [](Frame& f) { f.bytes[kFirstExtension] = std::byte{0x62}; })),
               Contains("NAKs a PSN that was not expected") || Contains("nothing is wrong"));
  }
  SECTION("a reserved syndrome") {
    CHECK_THAT(violations_under(change_first(is_plain_ack,
                                             [](Frame& f) {
                                               f.bytes[kFirstExtension] = std::byte{0x40};
                                               add_to_psn(f, 1);
                                             })),
               Contains("a reserved syndrome") || Contains("MSN"));
  }
  SECTION("an acknowledgement that goes back") {
    Tamper tamper;
    tamper.before_oracle = [acks = 0](Frame& frame) mutable {
      if (is_plain_ack(frame) && frame.source == 0 && ++acks == 4) {
        add_to_psn(frame, -100);
      }
    };
    CHECK_THAT(violations_under(tamper), Contains("acknowledges less than before"));
  }
  SECTION("READ response length") {
    CHECK_THAT(violations_under(change_first(
                   [](const Frame& f) {
                     return info_of(f).operation == transport::Operation::kReadResponse &&
                            f.bytes.size() > 64;
                   },
                   [](Frame& f) { f.bytes.resize(f.bytes.size() - 4); })),
               Contains("bytes of payload, expected"));
  }
}

TEST_CASE("a malformed packet is found", "[canary]") {
  CHECK_THAT(violations_under(change_first(is_request_with_payload,
                                           [](Frame& f) { f.bytes[0] = std::byte{0x1f}; })),
             Contains("malformed"));
}

TEST_CASE("a request that is executed twice is found", "[canary]") {
  // A WRITE comes again, with the PSN of a later packet in whose place it is executed.
  Tamper tamper;
  std::vector<std::byte> old_write;
  tamper.on_wire = [&old_write](Frame& frame) {
    if (opcode_of(frame) != transport::opcode::kWriteOnly || frame.source != 0) return;
    if (old_write.empty()) {
      old_write = frame.bytes;
    } else if (old_write.size() == frame.bytes.size() ||
               info_of(frame).header_bytes + 4u < frame.bytes.size()) {
      std::copy_n(frame.bytes.begin() + 5, 7, old_write.begin() + 5);  // destination and PSN
      frame.bytes = old_write;
    }
  };
  CHECK(violations_under(tamper) != "");
}

TEST_CASE("a link that lies about loss masks is found", "[canary]") {
  Tamper tamper;
  tamper.on_wire = [](Frame& frame) {
    if (is_request_with_payload(frame)) add_to_byte(frame, info_of(frame).header_bytes, 1);
  };
  ExchangeRig rig(&tamper);
  CHECK(rig.run({transport::SendOpcode::kRdmaWrite, 768}, 0x2).violation != "");
}

}  // namespace uroce::sim
