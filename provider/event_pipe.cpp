// Event delivery, one message in the pipe at a time.
#include "provider/event_pipe.hpp"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "datapath/log.hpp"
#include "provider/refusal.hpp"

namespace uroce::provider {
namespace {

constexpr size_t kMaxMessageBytes = 16;

size_t bytes_of(EventPipe::Message message) {
  return message == EventPipe::Message::kCompletion ? 8 : kMaxMessageBytes;
}

}  // namespace

Result<std::unique_ptr<EventPipe>> EventPipe::open(Message message) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return because(errno, "no pipe for events: {}; raise the limit of open files", strerror(errno));
  }
  const std::string path = fmt::format("/proc/self/fd/{}", ends[0]);
  const int drain = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (drain < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) {
    const int error = errno;
    for (const int fd : {ends[0], ends[1], drain}) {
      if (fd >= 0) close(fd);
    }
    return because(error, "no pipe for events: cannot open {}: {}", path, strerror(error));
  }
  return std::unique_ptr<EventPipe>(new EventPipe(message, ends[0], drain, ends[1]));
}

EventPipe::EventPipe(Message message, int read_fd, int drain_fd, int write_fd)
    : message_(message), read_fd_(read_fd), drain_fd_(drain_fd), write_fd_(write_fd) {}

EventPipe::~EventPipe() {
  close_in_child();
}

void EventPipe::close_in_child() {
  for (int* fd : {&drain_fd_, &write_fd_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

void EventPipe::raise(EventSource& source, uint32_t type) {
  const std::lock_guard lock(mutex_);
  auto* const end = source.pending_.data() + source.pending_types_;
  auto* const found = std::find_if(source.pending_.data(), end,
                                   [type](const auto& pending) { return pending.type == type; });
  if (found != end) {
    ++found->count;
  } else if (source.pending_types_ < EventSource::kMaxTypes) {
    *found = {type, 1};
    ++source.pending_types_;
  }
  if (!source.queued_) enqueue(source);
  if (in_pipe_ == nullptr) push_next();
}

void EventPipe::on_read(EventSource& source) {
  const std::lock_guard lock(mutex_);
  if (in_pipe_ != &source) return;  // forget() met the reader and has counted the message
  ++source.delivered_;
  in_pipe_ = nullptr;
  push_next();
}

uint32_t EventPipe::forget(EventSource& source) {
  const std::lock_guard lock(mutex_);
  unlink(source);
  source.pending_types_ = 0;
  if (in_pipe_ == &source) {
    // An application thread may have read the message and be about to call on_read.
    std::byte message[kMaxMessageBytes];
    if (read(drain_fd_, message, bytes_of(message_)) <= 0) ++source.delivered_;
    in_pipe_ = nullptr;
    push_next();
  }
  return source.delivered_;
}

void EventPipe::enqueue(EventSource& source) {
  source.queued_ = true;
  source.next_ = nullptr;
  source.previous_ = tail_;
  (tail_ != nullptr ? tail_->next_ : head_) = &source;
  tail_ = &source;
}

void EventPipe::unlink(EventSource& source) {
  if (!source.queued_) return;
  (source.previous_ != nullptr ? source.previous_->next_ : head_) = source.next_;
  (source.next_ != nullptr ? source.next_->previous_ : tail_) = source.previous_;
  source.queued_ = false;
}

void EventPipe::push_next() {
  EventSource* const source = head_;
  if (source == nullptr) return;
  auto& oldest = source->pending_[0];
  const uint32_t type = oldest.type;
  unlink(*source);
  if (--oldest.count == 0) {
    std::copy(source->pending_.begin() + 1, source->pending_.begin() + source->pending_types_,
              source->pending_.begin());
    --source->pending_types_;
  }
  if (source->pending_types_ > 0) enqueue(*source);

  std::byte message[kMaxMessageBytes] = {};
  memcpy(message, &source->element_, sizeof source->element_);
  memcpy(message + 8, &type, sizeof type);
  // The pipe is empty, so this neither blocks nor fails; were it to, the event is lost and said.
  if (write(write_fd_, message, bytes_of(message_)) < 0) {
    datapath::log(datapath::LogLevel::kError, "event lost: {}", strerror(errno));
    return;
  }
  in_pipe_ = source;
}

}  // namespace uroce::provider
