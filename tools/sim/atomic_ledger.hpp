// Checks that the ATOMICs on one shared word happened exactly once each, in some order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace uroce::sim {

class AtomicLedger {
 public:
  struct Entry {
    uint32_t requester = 0;  // entries of one requester are in its order of posting
    bool is_swap = false;
    uint64_t compare_add = 0;
    uint64_t swap = 0;
    std::optional<uint64_t> original;  // none: it failed, and may have been executed or not
  };

  explicit AtomicLedger(uint64_t initial) : initial_(initial) {}

  void add(const Entry& entry) { entries_.push_back(entry); }
  // Why no order of the entries leads from the initial value to `final_value` with the originals
  // that were returned. Operands are random 64-bit numbers, so that a value occurs only once.
  [[nodiscard]] std::optional<std::string> check(uint64_t final_value) const;

 private:
  struct Walk;

  uint64_t initial_;
  std::vector<Entry> entries_;
};

}  // namespace uroce::sim
