// The TCP connection beside the RDMA traffic: exchanges addresses and keeps both sides in step.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

namespace uroce::tests {

class SideChannel {
 public:
  static SideChannel accept_on(uint16_t port) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const sockaddr_in here = address("0.0.0.0", port);
    if (bind(listener, reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0 ||
        listen(listener, 1) != 0) {
      throw std::runtime_error("cannot listen on port " + std::to_string(port));
    }
    const int connection = accept(listener, nullptr, nullptr);
    close(listener);
    return SideChannel(connection);
  }

  // The server may not have started yet: tries for a minute.
  static SideChannel connect_to(const std::string& server, uint16_t port) {
    constexpr int kTries = 300;
    const sockaddr_in there = address(server, port);
    for (int tries = 0; tries < kTries; ++tries) {
      const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(connection, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0) {
        return SideChannel(connection);
      }
      close(connection);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    throw std::runtime_error("no server at " + server);
  }

  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;
  SideChannel(SideChannel&& other) noexcept : socket_(other.socket_) { other.socket_ = -1; }
  ~SideChannel() { close(socket_); }

  // Sends a plain value of ours and returns the peer's.
  template <typename Value>
  Value exchange(const Value& ours) {
    Value theirs;
    if (write(socket_, &ours, sizeof ours) != static_cast<ssize_t>(sizeof ours)) {
      throw std::runtime_error("side channel: cannot write");
    }
    auto* at = reinterpret_cast<char*>(&theirs);
    for (size_t missing = sizeof theirs; missing > 0;) {
      const ssize_t got = read(socket_, at, missing);
      if (got <= 0) {
        throw std::runtime_error("side channel: the peer has gone");
      }
      at += got;
      missing -= static_cast<size_t>(got);
    }
    return theirs;
  }

  // Returns when the peer has come to the same point.
  void meet() { exchange('m'); }

 private:
  explicit SideChannel(int socket) : socket_(socket) {
    const int one = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }

  static sockaddr_in address(const std::string& host, uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = inet_addr(host.c_str());
    return out;
  }

  int socket_;
};

}  // namespace uroce::tests
