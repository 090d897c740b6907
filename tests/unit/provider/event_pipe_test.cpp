// Event delivery through a pipe that holds one message at a time.
#include "provider/event_pipe.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "tests/catch.hpp"

namespace uroce::provider {
namespace {

struct Pipe {
  explicit Pipe(EventPipe::Message message = EventPipe::Message::kCompletion) {
    auto opened = EventPipe::open(message);
    REQUIRE(opened.ok());
    events = std::move(opened.value());
    fd = events->read_fd();
  }
  ~Pipe() { close(fd); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  bool readable() const {
    pollfd entry{fd, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  }
  // As ibv_get_cq_event reads; 0: nothing there.
  uint64_t read_element() const {
    uint64_t element = 0;
    if (!readable() || read(fd, &element, sizeof element) != sizeof element) return 0;
    return element;
  }

  std::unique_ptr<EventPipe> events;
  int fd;
};

struct AsyncMessage {
  uint64_t element;
  uint32_t type;
  uint32_t reserved;
};

TEST_CASE("an event is one message that names its source") {
  Pipe pipe;
  EventSource source(77);
  CHECK(!pipe.readable());
  pipe.events->raise(source, 0);
  CHECK(pipe.read_element() == 77);
  pipe.events->on_read(source);
  CHECK(!pipe.readable());
  CHECK(pipe.events->forget(source) == 1);
}

TEST_CASE("the next message enters the pipe when the one before has been read") {
  Pipe pipe;
  EventSource first(1), second(2);
  pipe.events->raise(first, 0);
  pipe.events->raise(second, 0);
  CHECK(pipe.read_element() == 1);
  CHECK(!pipe.readable());
  pipe.events->on_read(first);
  CHECK(pipe.read_element() == 2);
  pipe.events->on_read(second);
  CHECK(!pipe.readable());
}

TEST_CASE("a source that raises twice unread is told twice, after the others had their turn") {
  Pipe pipe;
  EventSource busy(1), other(2);
  pipe.events->raise(busy, 0);
  pipe.events->raise(busy, 0);
  pipe.events->raise(busy, 0);
  pipe.events->raise(other, 0);
  std::vector<uint64_t> seen;
  for (uint64_t element; (element = pipe.read_element()) != 0;) {
    seen.push_back(element);
    pipe.events->on_read(element == 1 ? busy : other);
  }
  CHECK(seen == std::vector<uint64_t>{1, 1, 2, 1});
  CHECK(pipe.events->forget(busy) == 3);
  CHECK(pipe.events->forget(other) == 1);
}

TEST_CASE("a thousand sources on one pipe block nobody and all arrive in order") {
  Pipe pipe;
  std::vector<std::unique_ptr<EventSource>> sources;
  for (uint64_t i = 1; i <= 1000; ++i) sources.push_back(std::make_unique<EventSource>(i));
  for (auto& source : sources) pipe.events->raise(*source, 0);
  for (uint64_t i = 1; i <= 1000; ++i) {
    REQUIRE(pipe.read_element() == i);
    pipe.events->on_read(*sources[i - 1]);
  }
  CHECK(!pipe.readable());
}

TEST_CASE("forgetting a source removes its message from the pipe and lets the next one in") {
  Pipe pipe;
  EventSource gone(1), stays(2);
  pipe.events->raise(gone, 0);
  pipe.events->raise(stays, 0);
  CHECK(pipe.events->forget(gone) == 0);
  CHECK(pipe.read_element() == 2);
  pipe.events->on_read(stays);
  CHECK(!pipe.readable());
}

TEST_CASE("forgetting a source removes what waits in the list") {
  Pipe pipe;
  EventSource first(1), gone(2), last(3);
  for (EventSource* source : {&first, &gone, &last}) pipe.events->raise(*source, 0);
  CHECK(pipe.events->forget(gone) == 0);
  CHECK(pipe.read_element() == 1);
  pipe.events->on_read(first);
  CHECK(pipe.read_element() == 3);
}

TEST_CASE("forgetting does not block on a message that a reader holds, and counts it") {
  Pipe pipe;  // a blocking descriptor, as libibverbs makes them
  EventSource gone(1), stays(2);
  pipe.events->raise(gone, 0);
  pipe.events->raise(stays, 0);
  CHECK(pipe.read_element() == 1);  // the reader has not called on_read yet
  CHECK(pipe.events->forget(gone) == 1);
  pipe.events->on_read(gone);  // now it has; the message in the pipe is another's
  CHECK(pipe.read_element() == 2);
  pipe.events->on_read(stays);
  CHECK(pipe.events->forget(stays) == 1);
}

TEST_CASE("the application's O_NONBLOCK neither hinders nor is undone by us") {
  Pipe pipe;
  EventSource source(5);
  REQUIRE(fcntl(pipe.fd, F_SETFL, O_NONBLOCK) == 0);
  uint64_t element = 0;
  CHECK(read(pipe.fd, &element, sizeof element) == -1);
  pipe.events->raise(source, 0);
  CHECK(pipe.events->forget(source) == 0);
  CHECK(read(pipe.fd, &element, sizeof element) == -1);
  CHECK((fcntl(pipe.fd, F_GETFL) & O_NONBLOCK) != 0);
}

TEST_CASE("a closed read end kills nobody by SIGPIPE") {
  Pipe pipe;
  EventSource source(5);
  close(pipe.fd);
  pipe.events->raise(source, 0);
  CHECK(pipe.events->forget(source) == 0);
  pipe.fd = -1;
}

TEST_CASE("asynchronous events carry their type, oldest first") {
  Pipe pipe(EventPipe::Message::kAsynchronous);
  EventSource source(9);
  for (const uint32_t type : {4u, 1u, 16u}) pipe.events->raise(source, type);
  for (const uint32_t type : {4u, 1u, 16u}) {
    AsyncMessage message{};
    REQUIRE(pipe.readable());
    REQUIRE(read(pipe.fd, &message, sizeof message) == sizeof message);
    CHECK(message.element == 9);
    CHECK(message.type == type);
    CHECK(message.reserved == 0);
    pipe.events->on_read(source);
  }
  CHECK(!pipe.readable());
}

TEST_CASE("every descriptor closes on exec") {
  Pipe pipe;
  CHECK((fcntl(pipe.fd, F_GETFD) & FD_CLOEXEC) != 0);
}

}  // namespace
}  // namespace uroce::provider
