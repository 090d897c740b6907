// Every way to lose the first twelve frames of a short exchange.
#include "tools/sim/exchange.hpp"

#include "tests/catch.hpp"

namespace uroce::sim {
namespace {

// Whether the eight tries of retry_cnt 7 are all in vain when the exchange is one request and one
// response: counted by hand, without the simulator.
bool eight_tries_fail(uint64_t mask) {
  uint32_t frame = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    const bool request_lost = (mask >> frame++ & 1) != 0;
    if (request_lost) continue;
    const bool response_lost = (mask >> frame++ & 1) != 0;
    if (!response_lost) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("every short exchange survives every loss of its first frames", "[masks]") {
  uint64_t runs = 0;
  for (const Exchange& exchange : short_exchanges()) {
    ExchangeRig rig;
    uint64_t gave_up = 0;
    for (uint64_t mask = 0; mask < kLossMasks; ++mask, ++runs) {
      const auto outcome = rig.run(exchange, mask);
      if (!outcome.violation.empty()) {
        FAIL(outcome.violation << "\nreplay: " << replay_command(exchange, mask));
      }
      gave_up += outcome.gave_up;
      if (exchange.length <= exchange_mtu() && outcome.gave_up != eight_tries_fail(mask)) {
        FAIL((outcome.gave_up ? "gave up too early" : "tried too often")
             << "\nreplay: " << replay_command(exchange, mask));
      }
    }
    // Twelve lost frames suffice to exhaust eight tries of a single packet: 374 masks do.
    if (exchange.length <= exchange_mtu()) CHECK(gave_up == 374);
  }
  CHECK(runs == 27 * 4096);
}

TEST_CASE("a loss mask loses exactly its frames", "[masks]") {
  ExchangeRig rig;
  const Exchange exchange{transport::SendOpcode::kSend, 1};
  CHECK(rig.run(exchange, 0).frames == 2);  // message, acknowledgement
  CHECK(rig.run(exchange, 1).frames == 3);  // the message again
  CHECK(rig.run(exchange, 2).frames == 4);  // the acknowledgement was lost: both again
  CHECK(rig.run(exchange, 0x000).violation.empty());
  CHECK(rig.run(exchange, 0xfff).gave_up);
}

}  // namespace uroce::sim
