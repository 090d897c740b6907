// The messages of the control socket: who connects, and the memory of its ring.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "datapath/fabric/owned_fd.hpp"
#include "transport/result.hpp"

namespace uroce::datapath {

// One datagram of a SOCK_SEQPACKET socket, in host byte order. The first 64 bytes keep their
// meaning in every version, so that any two versions can name each other.
struct ControlMessage {
  static constexpr uint64_t kMagic = 0x6c74636563727275;  // "urrcectl"
  static constexpr size_t kFrozenBytes = 64;

  enum class Kind : uint32_t {
    kHello = 1,    // client: I am this slot and generation; attached: the ring I write
    kWelcome = 2,  // server: I am this slot and generation, and read your ring
    kRefused = 3,  // server: another version, or a slot that you do not hold
  };

  uint64_t magic = kMagic;
  uint32_t protocol_version = 0;
  Kind kind = Kind::kHello;
  char build[48] = {};  // NUL-terminated
  // From here on: protocol_version's own.
  uint32_t slot = 0;
  uint32_t generation = 0;
  uint64_t ring_capacity = 0;  // bytes; kHello only

  std::string_view build_text() const;
};
static_assert(sizeof(ControlMessage) == 80);

// This program's message of a kind.
ControlMessage make_message(ControlMessage::Kind kind, uint8_t slot, uint32_t generation);

struct ReceivedMessage {
  ControlMessage message;
  OwnedFd attached;
};

// Sends one message, with a descriptor if attached_fd >= 0. Never blocks, never raises SIGPIPE.
Status send_message(int socket, const ControlMessage& message, int attached_fd);

// Receives one message. Refusals: EAGAIN (none yet), ECONNRESET (the peer is gone), EPROTO with a
// sentence that names both versions (another version's), EBADMSG (not a message at all).
Result<ReceivedMessage> receive_message(int socket);

// True if the process at the other end runs as the same user as we.
bool is_same_user(int socket);

}  // namespace uroce::datapath
