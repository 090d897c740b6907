// Short exchanges of one operation, for every way to lose the first frames.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/sim/tamper.hpp"
#include "tools/sim/transcript.hpp"
#include "transport/verbs.hpp"

namespace uroce::sim {

inline constexpr uint32_t kMaskedFrames = 12;  // both directions counted
inline constexpr uint64_t kLossMasks = 1ull << kMaskedFrames;

struct Exchange {
  transport::SendOpcode opcode = transport::SendOpcode::kSend;
  uint32_t length = 0;  // bytes
};

// The seven operations with 0, 1, MTU, MTU+1 and 3*MTU bytes; ATOMICs have 8.
std::vector<Exchange> short_exchanges();
// Path MTU of the exchanges, in bytes.
uint32_t exchange_mtu();

// Two hosts with one pair of queue pairs that are reset before each run. Spent after a violation.
class ExchangeRig {
 public:
  // `tamper` and `writer` may be null; a null writer: nothing is recorded.
  explicit ExchangeRig(const Tamper* tamper = nullptr, Transcript::Writer writer = nullptr);
  ~ExchangeRig();

  struct Outcome {
    std::string violation;  // empty: as it must be
    bool gave_up = false;   // RETRY_EXC, after the eight transmissions that retry_cnt 7 allows
    uint64_t frames = 0;
  };
  // Frame i of the exchange is lost if bit i of the mask is set.
  Outcome run(const Exchange& exchange, uint64_t loss_mask);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// "uroce sim --exchange WRITE --length 257 --mask 0x3f"
std::string replay_command(const Exchange& exchange, uint64_t loss_mask);

}  // namespace uroce::sim
