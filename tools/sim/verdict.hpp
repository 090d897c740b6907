// What the oracles found: the violations of one run, in the order in which they were seen.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace uroce::sim {

class Verdict {
 public:
  static constexpr size_t kMaxViolations = 8;  // what follows the first ones is rarely news

  void violate(std::string what) {
    if (violations_.size() < kMaxViolations) violations_.push_back(std::move(what));
  }
  void clear() { violations_.clear(); }
  bool ok() const { return violations_.empty(); }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::vector<std::string> violations_;
};

}  // namespace uroce::sim
