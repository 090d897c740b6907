// One process per interface: a lock that dies with its holder and works across users.
#pragma once

#include "datapath/ethdev/file_descriptor.hpp"
#include "transport/result.hpp"

namespace uroce::datapath {

// An abstract unix socket named by the interface's index: abstract names live in the network
// namespace, as interfaces do, and vanish with the process. Held while the descriptor is open.
// Refusals: EBUSY, with the holder's pid.
Result<FileDescriptor> lock_port(const std::string& name, int ifindex);

}  // namespace uroce::datapath
