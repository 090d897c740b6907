// The device directory: a folder like /sys/class/infiniband/<device>, from which libibverbs answers
// GID, P_Key and GUID queries when there is no kernel device to ask.
#pragma once

#include <string>

#include "datapath/device.hpp"
#include "transport/result.hpp"

namespace uroce::provider {

// Makes sure that the directory of `device` under `parent` exists and says what `device` says;
// returns its path, parent/<node GUID>/<name>. That is a symbolic link to a folder named after its
// content and replaced atomically, so that any number of processes may call this at once and
// readers see old or new, never half. Folders are made with mode 0700; one of another owner is
// refused with EPERM, as what it says could not be believed. Other refusals: the errno of what
// failed; ENAMETOOLONG when libibverbs could not hold the path.
Result<std::string> publish_device_directory(const std::string& parent,
                                             const datapath::DeviceDescription& device);

}  // namespace uroce::provider
