// DPDK's environment layer, started once per process and as quietly as it can be.
#pragma once

#include <string>

#include "transport/result.hpp"

namespace uroce::datapath {

// Starts EAL without hugepages, PCI scan, shared files or worker threads, from a thread of its own:
// it pins its caller, and the application's affinity and signal mask are not ours to change. Later
// calls are free. Refusals: EIO in a forked child of a process that started it (it cannot start
// twice), or with DPDK's own words.
Status start_eal();

// What DPDK last complained of; empty if nothing. For the sentence of a refusal.
std::string last_dpdk_error();

}  // namespace uroce::datapath
