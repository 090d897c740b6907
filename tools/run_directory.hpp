// The user's private directory for fabrics, made and checked before a program starts.
#pragma once

#include <string>

#include "transport/result.hpp"

namespace uroce::tools {

// Makes `directory` and the parent that we own (0700) where missing, and checks that what is there
// is a directory of this user with no rights for others: nobody else can join or plant files.
// Refusals: EPERM, ENOTDIR, or what mkdir said.
Status prepare_run_directory(const std::string& parent, const std::string& directory);

}  // namespace uroce::tools
