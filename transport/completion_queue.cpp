// The ring's two sides, and the fences by which an arming and a completion never miss each other.
#include "transport/completion_queue.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <type_traits>

namespace uroce::transport {

namespace {

static_assert(std::is_trivially_destructible_v<CqEntry>);

bool fires_solicited(const CqEntry& entry) {
  return entry.solicited || entry.completion.status != CompletionStatus::kSuccess;
}

CqEntry* allocate_ring(uint32_t entries) {
  return static_cast<CqEntry*>(
      ::operator new (entries * sizeof(CqEntry), std::align_val_t{CompletionQueue::kLine}));
}

}  // namespace

void CompletionQueue::FreeRing::operator()(CqEntry* ring) const {
  ::operator delete (ring, std::align_val_t{kLine});
}

CompletionQueue::CompletionQueue(uint32_t capacity, EventSink& events, void* owner)
    : capacity_(std::bit_ceil(std::max(capacity, 1u))),
      events_(events),
      owner_(owner),
      ring_(allocate_ring(capacity_)) {}

CompletionQueue::~CompletionQueue() = default;

size_t CompletionQueue::poll(std::span<Completion> out) {
  size_t taken = 0;
  while (taken < out.size()) {
    const size_t count = poll_batch(out.subspan(taken));
    if (count == 0) break;
    taken += count;
  }
  return taken;
}

size_t CompletionQueue::poll_batch(std::span<Completion> out) {
  const uint64_t consumed = consumed_.load(std::memory_order_relaxed);
  const size_t wanted = std::min(out.size(), kPollBatch);
  if (produced_seen_ - consumed < wanted) {
    produced_seen_ = produced_.load(std::memory_order_acquire);
  }
  const size_t count = std::min<size_t>(produced_seen_ - consumed, wanted);
  if (count == 0) return 0;

  struct Release {
    std::atomic<uint32_t>* counter;
    uint32_t value;
  };
  std::array<Release, kPollBatch> releases;
  size_t release_count = 0;
  for (size_t i = 0; i < count; ++i) {
    const CqEntry& entry = *entry_at(consumed + i);
    out[i] = entry.completion;
    if (entry.released == nullptr) continue;
    const bool same = release_count != 0 && releases[release_count - 1].counter == entry.released;
    if (!same) ++release_count;
    releases[release_count - 1] = {entry.released, entry.release_to};
  }
  // Room here first, then work queue slots: else a request posted into a freed slot could complete
  // into a queue that is still full.
  consumed_.store(consumed + count, std::memory_order_release);
  for (size_t i = 0; i < release_count; ++i) {
    releases[i].counter->store(releases[i].value, std::memory_order_release);
  }
  return count;
}

bool CompletionQueue::empty() const {
  return produced_.load(std::memory_order_acquire) == consumed_.load(std::memory_order_relaxed);
}

// Arming and production meet as in Dekker's algorithm: each side stores its own word, then loads
// the other's, all four sequentially consistent. So either push sees the arming, or the poll
// that follows arm finds the entry.
void CompletionQueue::arm(bool solicited_only) {
  armed_.fetch_or(solicited_only ? kArmedSolicited : kArmedNext, std::memory_order_seq_cst);
  produced_seen_ = produced_.load(std::memory_order_seq_cst);
}

bool CompletionQueue::push(const CqEntry& entry) {
  if (overflown_.load(std::memory_order_relaxed)) return false;
  const uint64_t produced = produced_.load(std::memory_order_relaxed);
  if (produced - consumed_seen_ == capacity_) {
    consumed_seen_ = consumed_.load(std::memory_order_acquire);
    if (produced - consumed_seen_ == capacity_) {
      overflown_.store(true, std::memory_order_release);
      events_.on_async_event(AsyncEventType::kCqError, owner_);
      return false;
    }
  }
  new (entry_at(produced)) CqEntry(entry);
  const bool solicited = fires_solicited(entry);
  produced_.store(produced + 1, std::memory_order_seq_cst);
  const uint32_t armed = armed_.load(std::memory_order_seq_cst);
  if ((armed & kArmedNext) != 0 || (armed != 0 && solicited)) fire();
  return true;
}

bool CompletionQueue::overflown() const {
  return overflown_.load(std::memory_order_acquire);
}

void CompletionQueue::fire() {
  if (armed_.exchange(0, std::memory_order_seq_cst) != 0) events_.on_completion_event(*this);
}

void CompletionQueue::remove_all_of(Qpn qpn) {
  const uint64_t consumed = consumed_.load(std::memory_order_relaxed);
  const uint64_t produced = produced_.load(std::memory_order_relaxed);
  for (uint64_t number = consumed; number != produced; ++number) {
    const CqEntry& entry = *entry_at(number);
    if (entry.completion.qpn == qpn && entry.released != nullptr) {
      entry.released->store(entry.release_to, std::memory_order_release);
    }
  }
  // What stays moves up to the producer's end, newest first, so that `produced_` never goes back.
  uint64_t kept = produced;
  for (uint64_t number = produced; number != consumed; --number) {
    const CqEntry& entry = *entry_at(number - 1);
    if (entry.completion.qpn == qpn) continue;
    --kept;
    if (kept != number - 1) *entry_at(kept) = entry;
  }
  consumed_.store(kept, std::memory_order_release);
  produced_seen_ = produced;
}

}  // namespace uroce::transport
