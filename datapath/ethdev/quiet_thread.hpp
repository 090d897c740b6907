// Starting threads that leave the application's signals alone.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace uroce::datapath {

// Starts `body` in a thread of that name (15 characters at most) that blocks every signal from its
// first instruction on, as do the threads that it starts. The caller's own mask is as before.
template <typename Body>
std::thread start_quiet_thread(const char* name, Body&& body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace uroce::datapath
