// Sends and receives control messages with descriptors.
#include "datapath/fabric/control_message.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "datapath/fabric/slot_table.hpp"

namespace uroce::datapath {

namespace {

constexpr size_t kMaxAttached = 4;  // more are cut off and closed by the kernel

// Keeps the first descriptor that came along, closes others.
OwnedFd take_attached(msghdr& header) {
  OwnedFd first;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      OwnedFd owned(fd);
      if (!first) first = std::move(owned);
    }
  }
  return first;
}

}  // namespace

std::string_view ControlMessage::build_text() const {
  return {build, strnlen(build, sizeof build)};
}

ControlMessage make_message(ControlMessage::Kind kind, uint8_t slot, uint32_t generation) {
  ControlMessage message;
  message.protocol_version = kFabricProtocolVersion;
  message.kind = kind;
  build_name().copy(message.build, sizeof message.build - 1);
  message.slot = slot;
  message.generation = generation;
  return message;
}

Status send_message(int socket, const ControlMessage& message, int attached_fd) {
  iovec data{const_cast<ControlMessage*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (attached_fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof attached_fd);
    memcpy(CMSG_DATA(c), &attached_fd, sizeof attached_fd);
  }
  if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return Refusal{errno, fmt::format("cannot send to the peer: {}", strerror(errno))};
  }
  return Done{};
}

Result<ReceivedMessage> receive_message(int socket) {
  ReceivedMessage received;
  iovec data{&received.message, sizeof received.message};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxAttached * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t bytes = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return Refusal{EAGAIN, "no message yet"};
  if (bytes <= 0) return Refusal{ECONNRESET, "the peer is gone"};
  received.attached = take_attached(header);
  const ControlMessage& message = received.message;
  if (static_cast<size_t>(bytes) < ControlMessage::kFrozenBytes ||
      message.magic != ControlMessage::kMagic) {
    return Refusal{EBADMSG, "the peer does not speak uroce's fabric protocol"};
  }
  if (message.protocol_version != kFabricProtocolVersion) {
    return Refusal{EPROTO, fmt::format("the peer speaks fabric protocol {} ({}), this program {} "
                                       "({}): use one version of uroce, or two fabrics",
                                       message.protocol_version, message.build_text(),
                                       kFabricProtocolVersion, build_name())};
  }
  if (static_cast<size_t>(bytes) < sizeof message) {
    return Refusal{EBADMSG, "the peer's message is too short"};
  }
  return received;
}

bool is_same_user(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == geteuid();
}

}  // namespace uroce::datapath
