// A word that the kernel wipes in forked children, and the handlers around a fork.
#include "datapath/fork_guard.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace uroce::datapath {

namespace {

// Lies alone in a MADV_WIPEONFORK page: the kernel zeroes it in a child, even one made by a raw
// clone.
std::atomic<uint32_t>* g_live = nullptr;
uint32_t g_epoch = 0;
void (*g_in_child)() = nullptr;

void after_fork_in_child() {
  if (g_in_child != nullptr) g_in_child();
  ++g_epoch;
  g_live->store(g_epoch, std::memory_order_relaxed);
}

}  // namespace

void ForkGuard::install(void (*before_fork)(), void (*in_parent)(), void (*in_child)()) {
  if (g_live != nullptr) return;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  static std::atomic<uint32_t> fallback{0};
  // Without the page only pthread_atfork tells: a child made by a raw clone system call is not
  // noticed.
  const bool wiped = memory != MAP_FAILED && madvise(memory, page, MADV_WIPEONFORK) == 0;
  g_live = wiped ? static_cast<std::atomic<uint32_t>*>(memory) : &fallback;
  g_epoch = 1;
  g_live->store(g_epoch, std::memory_order_relaxed);
  g_in_child = in_child;
  pthread_atfork(before_fork, in_parent, after_fork_in_child);
}

uint32_t ForkGuard::epoch() {
  return g_epoch;
}

bool ForkGuard::is_current(uint32_t epoch) {
  return g_live->load(std::memory_order_relaxed) == epoch;
}

}  // namespace uroce::datapath
