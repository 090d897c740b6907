// A forked child that plays another process on the fabric.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "tests/catch.hpp"

namespace uroce::datapath {

// Runs `act(say)` in a child; say(byte) tells the parent, which hears it with listen(). The child
// exits when act returns, or is killed, at the latest with this object. It must not use Catch.
class ChildProcess {
 public:
  template <typename Act>
  explicit ChildProcess(Act&& act) {
    REQUIRE(pipe(pipe_) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      close(pipe_[0]);
      act([this](uint8_t byte) {
        if (write(pipe_[1], &byte, 1) != 1) _exit(2);
      });
      _exit(0);
    }
    close(pipe_[1]);
  }
  ~ChildProcess() {
    kill_now();
    close(pipe_[0]);
  }
  ChildProcess(const ChildProcess&) = delete;

  // The next byte that the child said; fails the test if it died before.
  uint8_t listen() {
    uint8_t byte = 0;
    REQUIRE(read(pipe_[0], &byte, 1) == 1);
    return byte;
  }
  // kill -9, and waits until it is gone.
  void kill_now() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  // Waits for its end; true if it returned from `act`.
  bool join() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  pid_t pid() const { return pid_; }

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

}  // namespace uroce::datapath
