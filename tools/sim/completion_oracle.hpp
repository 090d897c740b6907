// Judges every completion by what was posted: exactly once, in order, right in all members, and the
// data where they belong.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "tools/sim/atomic_ledger.hpp"
#include "tools/sim/model.hpp"
#include "tools/sim/verdict.hpp"
#include "transport/verbs.hpp"

namespace uroce::sim {

// The ledgers of a host's shared words.
using AtomicLedgers = std::vector<AtomicLedger>;

class CompletionOracle {
 public:
  explicit CompletionOracle(Verdict& verdict) : verdict_(verdict) {}

  void on_send_completion(Endpoint& end, const transport::Completion& completion,
                          AtomicLedgers& peer_words);
  void on_receive_completion(Endpoint& end, const transport::Completion& completion);
  // At the end of a connection: everything posted on `end` has completed, for a known reason.
  void judge_end(const Endpoint& end);

 private:
  void succeed(Endpoint& end, Operation& operation, AtomicLedgers& peer_words);
  void judge_send_success(const Endpoint& end, const Operation& operation,
                          const transport::Completion& completion);
  void judge_send_failure(Endpoint& end, const Operation& operation,
                          const transport::Completion& completion);
  void judge_delivery(Endpoint& end, const Operation& operation);
  void judge_read(Endpoint& end, const Operation& operation);
  void judge_receive_success(Endpoint& end, Receive& receive,
                             const transport::Completion& completion);
  void judge_receive_failure(Endpoint& end, const Receive& receive,
                             const transport::Completion& completion);
  void blame(const Endpoint& end, const transport::Completion& completion, std::string_view what);
  void check(const Endpoint& end, const Memory& memory, uint64_t offset, uint64_t length,
             std::string_view what);

  Verdict& verdict_;
};

}  // namespace uroce::sim
