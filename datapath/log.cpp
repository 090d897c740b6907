// Writes messages for people, one write(2) a line.
#include "datapath/log.hpp"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

namespace uroce::datapath {
namespace {

// Plain atomics and no lock: a fork may happen while another thread logs.
std::atomic<LogLevel> current_level{LogLevel::kWarning};
std::atomic<int> target_fd{STDERR_FILENO};
std::atomic<int> file_fd{-1};  // stays open once made: a writer may hold its number

// Lines longer than this are cut: pipes and O_APPEND files keep shorter writes whole.
constexpr size_t kMaxLine = 4000;  // bytes

void open_target(const std::string& file) {
  if (file.empty()) {
    target_fd.store(STDERR_FILENO);
    return;
  }
  const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
  if (opened < 0) {
    const int error = errno;
    target_fd.store(STDERR_FILENO);
    log_line(LogLevel::kError, fmt::format("cannot open log file '{}' ({}): logging to stderr",
                                           file, strerror(error)));
    return;
  }
  int expected = -1;
  if (!file_fd.compare_exchange_strong(expected, opened)) {
    // The new file takes over the old one's number, atomically for other threads.
    dup3(opened, expected, O_CLOEXEC);
    close(opened);
  }
  target_fd.store(file_fd.load());
}

}  // namespace

void log_to(LogLevel level, const std::string& file) {
  const int saved_errno = errno;
  current_level.store(level, std::memory_order_relaxed);
  open_target(file);
  errno = saved_errno;
}

bool log_enabled(LogLevel level) {
  return level <= current_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view text) {
  const int saved_errno = errno;
  fmt::memory_buffer line;
  fmt::format_to(std::back_inserter(line), "uroce[{}] {}: {}", getpid(), name_of(level),
                 text.substr(0, kMaxLine));
  line.push_back('\n');
  // Nowhere to report a failure to; the program's own work goes on.
  [[maybe_unused]] const ssize_t written = write(target_fd.load(), line.data(), line.size());
  errno = saved_errno;
}

}  // namespace uroce::datapath
