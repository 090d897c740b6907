// The background thread of an open device: progress when no application thread calls in.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "datapath/config.hpp"
#include "datapath/lane.hpp"

namespace uroce::datapath {

class ProgressThread {
 public:
  // Starts the thread, named `name` (15 characters at most), with every signal blocked. `lane`
  // outlives it.
  ProgressThread(Lane& lane, const Config& config, const std::string& name);
  // Stops and joins it. Not for static destructors.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

 private:
  void main(std::string name);
  void run_dedicated();
  void run_shared();
  void step();
  void spin_after_traffic();
  void yield_measured();
  void sleep_until_needed();
  int64_t nap_ns(Instant now);
  void keep_off_the_applications_cpu();
  bool application_is_active();

  Lane& lane_;
  const ProgressMode mode_;
  const int dedicated_cpu_;
  std::atomic<bool> stop_{false};
  cpu_set_t allowed_{};     // at start; the thread stays within
  int avoided_cpu_ = -1;    // excluded from our affinity at present; -1: none
  uint64_t seen_runs_ = 0;  // application_runs when last looked at
  Instant last_application_run_{INT64_MIN / 2};
  Instant contended_until_{INT64_MIN /
                           2};  // a yield gave the CPU to another: sleep instead of yielding
  int64_t idle_nap_ns_ = 0;     // wires without a doorbell: grows while nothing comes
  std::thread thread_;
};

}  // namespace uroce::datapath
