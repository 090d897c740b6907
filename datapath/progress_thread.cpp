// When the background thread works, steps back, yields and sleeps.
#include "datapath/progress_thread.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace uroce::datapath {

namespace {

// After traffic that no application thread helped with, the thread polls on for this long before it
// sleeps.
constexpr int64_t kSpinNs = 50'000;
// An application thread ran the lane this recently: it will be back, so the thread only guards
// deadlines.
constexpr int64_t kApplicationActiveNs = 1'000'000;
// Naps while the application is active: bounds the delay of what it left undone before it turned
// away.
constexpr int64_t kNapNs = 1'000'000;
// The same while some frame waits for a peer that may have to be woken.
constexpr int64_t kWatchNapNs = 60'000;
// A yield that took longer ran somebody else on our CPU.
constexpr int64_t kYieldNs = 20'000;
constexpr int64_t kContendedNs = 10'000'000;
// Wires without a doorbell are polled at growing intervals.
constexpr int64_t kFirstPollNs = 50'000;
constexpr int64_t kLastPollNs = 2'000'000;
constexpr int64_t kLongestSleepNs = 1'000'000'000;
constexpr unsigned kPollsPerYield = 8;
// The scheduler's slice for this thread: much shorter than that of the applications that spin for
// its work.
constexpr uint64_t kSliceNs = 100'000;

cpu_set_t current_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
  return set;
}

int last_cpu_of(const cpu_set_t& set) {
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
    if (CPU_ISSET(cpu, &set)) return cpu;
  }
  return 0;
}

// Under EEVDF (Linux 6.12 on) a thread that wakes preempts one with a longer slice at once, instead
// of waiting for milliseconds. Older kernels ignore it.
void ask_for_short_slices() {
  struct {  // struct sched_attr of sched_setattr(2), whose header glibc's clashes with
    uint32_t size;
    uint32_t sched_policy;
    uint64_t sched_flags;
    int32_t sched_nice;
    uint32_t sched_priority;
    uint64_t sched_runtime;
    uint64_t sched_deadline;
    uint64_t sched_period;
  } attributes{};
  attributes.size = sizeof attributes;
  attributes.sched_policy = SCHED_OTHER;
  attributes.sched_runtime = kSliceNs;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

ProgressThread::ProgressThread(Lane& lane, const Config& config, const std::string& name)
    : lane_(lane), mode_(config.progress), dedicated_cpu_(config.dedicated_cpu) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, name] { main(name); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ProgressThread::~ProgressThread() {
  stop_.store(true, std::memory_order_release);
  lane_.wire().wake();
  thread_.join();
}

void ProgressThread::main(std::string name) {
  pthread_setname_np(pthread_self(), name.c_str());
  allowed_ = current_affinity();
  ask_for_short_slices();
  if (mode_ == ProgressMode::kDedicated) {
    run_dedicated();
  } else {
    run_shared();
  }
}

void ProgressThread::run_dedicated() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(dedicated_cpu_ >= 0 ? dedicated_cpu_ : last_cpu_of(allowed_), &one);
  sched_setaffinity(0, sizeof one, &one);
  unsigned idle = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    lane_.wire().note_polled();
    idle = lane_.run_for_background() == Lane::Run::kWorked ? 0 : idle + 1;
    if (idle % kPollsPerYield == kPollsPerYield - 1) sched_yield();
  }
}

void ProgressThread::run_shared() {
  while (!stop_.load(std::memory_order_acquire)) {
    step();
    sleep_until_needed();
  }
}

// Handles what there is; stays a while if nobody else does.
void ProgressThread::step() {
  while (!stop_.load(std::memory_order_relaxed)) {
    const Lane::Run ran = lane_.run_for_background();
    if (application_is_active()) {
      if (ran == Lane::Run::kWorked) continue;
      return;
    }
    if (ran == Lane::Run::kIdle) break;
    idle_nap_ns_ = 0;
    if (ran == Lane::Run::kBusy) yield_measured();
  }
  if (idle_nap_ns_ == 0) spin_after_traffic();
}

void ProgressThread::spin_after_traffic() {
  Instant last_work = lane_.now();
  for (unsigned polls = 1; !stop_.load(std::memory_order_relaxed); ++polls) {
    lane_.wire().note_polled();
    if (lane_.run_for_background() == Lane::Run::kWorked) last_work = lane_.now();
    if (polls % kPollsPerYield != 0) continue;
    const Instant now = lane_.now();
    if (now - last_work > kSpinNs || application_is_active() || now < contended_until_) return;
    yield_measured();
  }
}

void ProgressThread::yield_measured() {
  const Instant before = lane_.now();
  sched_yield();
  const Instant after = lane_.now();
  if (after - before > kYieldNs) contended_until_ = after + kContendedNs;
}

bool ProgressThread::application_is_active() {
  const uint64_t runs = lane_.application_runs();
  const Instant now = lane_.now();
  if (runs != seen_runs_) {
    seen_runs_ = runs;
    last_application_run_ = now;
  }
  return now - last_application_run_ < kApplicationActiveNs;
}

void ProgressThread::sleep_until_needed() {
  keep_off_the_applications_cpu();
  Wire& wire = lane_.wire();
  wire.arm();
  const Instant now = lane_.now();
  const Instant wake_at = std::min(now + nap_ns(now), lane_.next_deadline());
  lane_.background_sleeps_until(wake_at);
  // What came between the last look and arming rang no bell.
  const bool found = lane_.run_for_background() == Lane::Run::kWorked;
  const Instant due = std::min(wake_at, lane_.next_deadline());
  if (!found && due > now && !stop_.load(std::memory_order_acquire)) wire.sleep(due - now);
  lane_.background_sleeps_until({0});
  wire.disarm();
}

// The longest time that may pass before the lane is looked at again, deadlines and doorbells aside.
int64_t ProgressThread::nap_ns(Instant now) {
  if (lane_.unfinished()) return kWatchNapNs;
  const bool active = application_is_active();
  if (lane_.wire().has_doorbell()) return active ? kNapNs : kLongestSleepNs;
  if (now - last_application_run_ < kApplicationActiveNs) return kNapNs;
  idle_nap_ns_ = std::clamp(idle_nap_ns_ * 2, kFirstPollNs, kLastPollNs);
  return idle_nap_ns_;
}

// An application thread that spins on its own memory must not share its CPU with the thread that it
// waits for.
void ProgressThread::keep_off_the_applications_cpu() {
  const int cpu = lane_.application_cpu();
  if (cpu == avoided_cpu_ || cpu < 0 || CPU_COUNT(&allowed_) < 2) return;
  cpu_set_t others = allowed_;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0) return;
  if (sched_setaffinity(0, sizeof others, &others) == 0) avoided_cpu_ = cpu;
}

}  // namespace uroce::datapath
