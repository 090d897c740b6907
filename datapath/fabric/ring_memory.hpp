// A ring's memory: a memfd that its producer makes and its consumer maps.
#pragma once

#include <cstddef>

#include "datapath/fabric/owned_fd.hpp"
#include "transport/result.hpp"

namespace uroce::datapath {

class RingMemory {
 public:
  RingMemory() = default;
  // Producer: zeroed, and sealed so that nobody can shrink it under a reader (SIGBUS).
  static Result<RingMemory> create(size_t capacity);
  // Consumer: maps a peer's descriptor after checking its size and seal.
  static Result<RingMemory> attach(int fd, size_t capacity);

  RingMemory(RingMemory&& other) noexcept;
  RingMemory& operator=(RingMemory&& other) noexcept;
  ~RingMemory();

  std::byte* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  // To pass to the consumer; then no longer needed.
  int fd() const { return fd_.get(); }
  void close_fd() { fd_.reset(); }

 private:
  OwnedFd fd_;
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace uroce::datapath
