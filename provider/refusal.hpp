// Turns a refusal into what a verb returns, after saying why at log level info.
#pragma once

#include <errno.h>
#include <fmt/format.h>

#include <utility>

#include "datapath/log.hpp"
#include "transport/result.hpp"

namespace uroce::provider {

// For verbs that return an errno value.
inline int refuse(const Refusal& refusal) {
  datapath::log(datapath::LogLevel::kInfo, "{}", refusal.why);
  errno = refusal.error;
  return refusal.error;
}

// For verbs that return a pointer: sets errno.
inline std::nullptr_t refuse_object(const Refusal& refusal) {
  refuse(refusal);
  return nullptr;
}

template <typename... Args>
Refusal because(int error, fmt::format_string<Args...> format, Args&&... args) {
  return {error, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace uroce::provider
