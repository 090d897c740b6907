// Rebuilds the order in which ATOMICs happened from the values that they returned.
#include "tools/sim/atomic_ledger.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace uroce::sim {
namespace {

constexpr uint32_t kMaxSteps = 100'000;  // of the search through operations of unknown outcome

uint64_t result_of(const AtomicLedger::Entry& entry, uint64_t value) {
  if (!entry.is_swap) return value + entry.compare_add;
  return entry.compare_add == value ? entry.swap : value;
}

}  // namespace

struct AtomicLedger::Walk {
  const std::vector<Entry>& entries;
  std::multimap<uint64_t, size_t> changing;  // known entries that changed the word, by original
  std::multimap<uint64_t, size_t> idle;      // known entries that did not
  std::vector<size_t> unknown;
  std::map<uint32_t, size_t> newest;  // by requester: its last entry so far
  uint64_t final_value;
  size_t known_left = 0;
  uint32_t steps = 0;

  // Entries of one requester happen in its order.
  bool in_order(size_t index) {
    const auto [at, fresh] = newest.try_emplace(entries[index].requester, index);
    if (!fresh && at->second > index) return false;
    at->second = index;
    return true;
  }

  bool advance(uint64_t value) {
    if (++steps > kMaxSteps) return true;  // too many possibilities to refute
    const auto newest_before = newest;
    const size_t known_before = known_left;
    const auto [idle_first, idle_end] = idle.equal_range(value);
    for (auto it = idle_first; it != idle_end; ++it) {
      if (!in_order(it->second)) return false;
      --known_left;
    }
    if (step_from(value)) return true;
    newest = newest_before;
    known_left = known_before;
    return false;
  }

  bool step_from(uint64_t value) {
    if (known_left == 0 && value == final_value) return true;
    const auto next = changing.find(value);
    if (next != changing.end()) {
      const auto before = newest;
      if (!in_order(next->second)) return false;
      --known_left;
      if (advance(result_of(entries[next->second], value))) return true;
      ++known_left;
      newest = before;
      return false;
    }
    for (size_t& candidate : unknown) {
      if (candidate == entries.size()) continue;
      const uint64_t result = result_of(entries[candidate], value);
      if (result == value) continue;
      const size_t index = std::exchange(candidate, entries.size());
      if (advance(result)) return true;
      candidate = index;
    }
    return false;
  }
};

std::optional<std::string> AtomicLedger::check(uint64_t final_value) const {
  Walk walk{entries_, {}, {}, {}, {}, final_value, 0, 0};
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (!entry.original) {
      walk.unknown.push_back(i);
      continue;
    }
    ++walk.known_left;
    if (result_of(entry, *entry.original) == *entry.original) {
      walk.idle.emplace(*entry.original, i);
    } else if (walk.changing.contains(*entry.original)) {
      return fmt::format("two ATOMICs found the value {:#x} and changed it", *entry.original);
    } else {
      walk.changing.emplace(*entry.original, i);
    }
  }
  if (walk.advance(initial_)) return std::nullopt;
  return fmt::format("no order of {} ATOMICs ({} of unknown outcome) leads from {:#x} to {:#x}",
                     entries_.size(), walk.unknown.size(), initial_, final_value);
}

}  // namespace uroce::sim
