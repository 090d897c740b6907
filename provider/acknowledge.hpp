// Destruction waits until the application has acknowledged the events that it has read, as
// ibv_destroy_cq and ibv_destroy_qp promise: their pointers would dangle otherwise.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <initializer_list>

namespace uroce::provider {

struct Acknowledgement {
  const uint32_t* completed;  // libibverbs counts here under the object's mutex
  uint32_t delivered;
};

inline void wait_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& condition,
                              std::initializer_list<Acknowledgement> awaited) {
  pthread_mutex_lock(&mutex);
  for (const auto& [completed, delivered] : awaited) {
    while (*completed != delivered) pthread_cond_wait(&condition, &mutex);
  }
  pthread_mutex_unlock(&mutex);
}

}  // namespace uroce::provider
