// Delivers events through a file descriptor that the application reads, polls and sets non-blocking
// as it likes: completion channels and asynchronous events.
//
// libibverbs reads a message from the descriptor, then calls ops->cq_event or ops->async_event. A
// plain pipe would block the engine when full, and a destroyed object's messages could not be taken
// back. So events wait in a list here, at most one message sits in the pipe, and on_read pushes the
// next one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "transport/result.hpp"

namespace uroce::provider {

class EventPipe;

// What events are about: a member of a CQ, a QP or a context. It must outlive its events: forget()
// first.
class EventSource {
 public:
  explicit EventSource(uint64_t element) : element_(element) {}
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

 private:
  friend class EventPipe;
  static constexpr size_t kMaxTypes = 8;  // no object has more types of events than that

  struct Pending {
    uint32_t type;   // ibv_event_type; 0 for completion events
    uint32_t count;  // events of this type not yet in the pipe
  };

  uint64_t element_;        // what the message names: an object's address or a port
  uint32_t delivered_ = 0;  // messages that the application has read
  std::array<Pending, kMaxTypes> pending_{};  // oldest first
  uint32_t pending_types_ = 0;
  bool queued_ = false;  // in the pipe's list
  EventSource* next_ = nullptr;
  EventSource* previous_ = nullptr;
};

class EventPipe {
 public:
  enum class Message : uint8_t {
    kCompletion,    // 8 bytes: the element
    kAsynchronous,  // 16 bytes: element, type, zero
  };

  // Refusals: EMFILE, ENFILE; EACCES or ENOENT when /proc/self/fd is not available.
  static Result<std::unique_ptr<EventPipe>> open(Message message);
  ~EventPipe();
  EventPipe(const EventPipe&) = delete;
  EventPipe& operator=(const EventPipe&) = delete;

  // The descriptor for the application; whoever hands it out closes it.
  int read_fd() const { return read_fd_; }

  // From any thread, also under the lane lock: no allocation, at most one write.
  void raise(EventSource& source, uint32_t type);
  // The application has read a message about `source`.
  void on_read(EventSource& source);
  // Drops the unread events of `source`, also the one in the pipe. Returns how many the
  // application has read and must acknowledge before the object goes.
  uint32_t forget(EventSource& source);
  // In a forked child: closes what the application does not know of. No lock: its holder may not
  // exist here.
  void close_in_child();

 private:
  EventPipe(Message message, int read_fd, int drain_fd, int write_fd);
  void enqueue(EventSource& source);
  void unlink(EventSource& source);
  void push_next();

  const Message message_;
  const int read_fd_;
  int drain_fd_;  // the same pipe, opened anew: non-blocking whatever the application does, and a
                  // reader that keeps SIGPIPE away
  int write_fd_;
  std::mutex mutex_;
  EventSource* head_ = nullptr;
  EventSource* tail_ = nullptr;
  EventSource* in_pipe_ = nullptr;  // whose message sits in the pipe, or was read a moment ago
};

}  // namespace uroce::provider
