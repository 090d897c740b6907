// Creates, seals, checks and maps the memory of rings.
#include "datapath/fabric/ring_memory.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "datapath/fabric/spsc_ring.hpp"

namespace uroce::datapath {

namespace {

Refusal refuse_errno(std::string_view what) {
  const int error = errno;
  return {error, fmt::format("fabric ring: {}: {}", what, strerror(error))};
}

Result<std::byte*> map_ring(int fd, size_t capacity) {
  void* const mapping =
      mmap(nullptr, RingLayout::mapping_bytes(capacity), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return refuse_errno("cannot map its memory");
  return static_cast<std::byte*>(mapping);
}

}  // namespace

Result<RingMemory> RingMemory::create(size_t capacity) {
  RingMemory memory;
  memory.fd_ = OwnedFd(memfd_create("uroce-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_) return refuse_errno("cannot create its memory");
  if (ftruncate(memory.fd(), static_cast<off_t>(RingLayout::mapping_bytes(capacity))) != 0) {
    return refuse_errno("cannot size its memory");
  }
  if (fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return refuse_errno("cannot seal its memory");
  }
  auto data = map_ring(memory.fd(), capacity);
  if (!data) return data.refusal();
  memory.data_ = *data;
  memory.capacity_ = capacity;
  memcpy(memory.data_, &RingLayout::kMagic, sizeof RingLayout::kMagic);
  return memory;
}

Result<RingMemory> RingMemory::attach(int fd, size_t capacity) {
  if (!RingLayout::is_capacity(capacity)) {
    return Refusal{EPROTO,
                   fmt::format("fabric ring: a capacity of {} bytes is not allowed: a "
                               "power of two from {} to {}",
                               capacity, RingLayout::kMinCapacity, RingLayout::kMaxCapacity)};
  }
  struct stat status {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &status) != 0 ||
      status.st_size != static_cast<off_t>(RingLayout::mapping_bytes(capacity))) {
    return Refusal{EPROTO, "fabric ring: the peer's memory is not a sealed memfd of its size"};
  }
  auto data = map_ring(fd, capacity);
  if (!data) return data.refusal();
  RingMemory memory;
  memory.data_ = *data;
  memory.capacity_ = capacity;
  uint64_t magic = 0;
  memcpy(&magic, memory.data_, sizeof magic);
  if (magic != RingLayout::kMagic) {
    return Refusal{EPROTO, "fabric ring: the peer's memory does not begin with a ring's magic"};
  }
  return memory;
}

RingMemory::RingMemory(RingMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)) {}

RingMemory& RingMemory::operator=(RingMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

RingMemory::~RingMemory() {
  if (data_ != nullptr) munmap(data_, RingLayout::mapping_bytes(capacity_));
}

}  // namespace uroce::datapath
