// Messages for people: to stderr or $UROCE_LOG, never to stdout, never per packet. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "datapath/config.hpp"

namespace uroce::datapath {

// Opens the target; call again after the configuration changed.
void log_to(LogLevel level, const std::string& file);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace uroce::datapath
