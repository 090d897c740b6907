// Where log lines go, and which are written.
#include "datapath/log.hpp"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/catch.hpp"

using namespace uroce::datapath;

namespace {

class TemporaryFile {
 public:
  TemporaryFile() { close(mkstemp(path_)); }
  ~TemporaryFile() { unlink(path_); }
  std::string path() const { return path_; }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  char path_[32] = "/tmp/uroce-log-test-XXXXXX";
};

}  // namespace

TEST_CASE("lines at or above the level are written with process and level") {
  TemporaryFile file;
  log_to(LogLevel::kInfo, file.path());
  log(LogLevel::kInfo, "slot {} is ours", 7);
  log(LogLevel::kDebug, "not this");
  CHECK(file.text() == fmt::format("uroce[{}] info: slot 7 is ours\n", getpid()));
  log_to(LogLevel::kWarning, "");
  CHECK_FALSE(log_enabled(LogLevel::kInfo));
  CHECK(log_enabled(LogLevel::kError));
}

TEST_CASE("a second call moves the log to another file") {
  TemporaryFile first;
  TemporaryFile second;
  log_to(LogLevel::kInfo, first.path());
  log_to(LogLevel::kInfo, second.path());
  log(LogLevel::kError, "here");
  CHECK(first.text().empty());
  CHECK(second.text().ends_with("error: here\n"));
  log_to(LogLevel::kWarning, "");
}

TEST_CASE("logging leaves errno alone, also when the file cannot be opened") {
  errno = ENOTTY;
  log_to(LogLevel::kError, "/nonexistent/uroce.log");
  log(LogLevel::kWarning, "not this");
  CHECK(errno == ENOTTY);
  log_to(LogLevel::kWarning, "");
}

TEST_CASE("lines of several threads stay whole") {
  TemporaryFile file;
  log_to(LogLevel::kInfo, file.path());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int line = 0; line < 100; ++line) log(LogLevel::kInfo, "{:x>200}", "");
    });
  }
  for (std::thread& thread : threads) thread.join();
  log_to(LogLevel::kWarning, "");
  std::string expected_line = fmt::format("uroce[{}] info: {:x>200}\n", getpid(), "");
  std::string expected;
  for (int i = 0; i < 400; ++i) expected += expected_line;
  CHECK(file.text() == expected);
}
