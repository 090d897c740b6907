// The counters of a device by name, for the stats files, `uroce devices` and tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "datapath/wire.hpp"
#include "transport/hca.hpp"

namespace uroce::datapath {

// Every counter with its name, in a fixed order: "rx_packets", …, "rx_drop_<reason>", …,
// "wire_rx_frames".
std::vector<std::pair<std::string, uint64_t>> named_counters(const transport::HcaCounters& hca,
                                                             const WireCounters& wire);

}  // namespace uroce::datapath
