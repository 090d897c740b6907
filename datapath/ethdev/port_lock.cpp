// Takes the port lock, or asks the kernel who has it.
#include "datapath/ethdev/port_lock.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace uroce::datapath {
namespace {

struct LockName {
  sockaddr_un address{};
  socklen_t length = 0;
};

LockName lock_name(int ifindex) {
  LockName name;
  name.address.sun_family = AF_UNIX;
  const std::string text = fmt::format("uroce-port-{}", ifindex);
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());  // a leading NUL: abstract
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

// The pid of the process that listens on `name`; 0 when it cannot be told.
pid_t holder_of(const LockName& name) {
  const FileDescriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* address = reinterpret_cast<const sockaddr*>(&name.address);
  if (!probe || connect(probe.get(), address, name.length) != 0) return 0;
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return 0;
  return credentials.pid;
}

}  // namespace

Result<FileDescriptor> lock_port(const std::string& name, int ifindex) {
  FileDescriptor lock(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!lock) return Refusal{errno, fmt::format("port lock: {}", std::strerror(errno))};
  const LockName lock_at = lock_name(ifindex);
  const auto* address = reinterpret_cast<const sockaddr*>(&lock_at.address);
  if (bind(lock.get(), address, lock_at.length) != 0) {
    if (errno != EADDRINUSE) return Refusal{errno, "port lock: bind failed"};
    const pid_t holder = holder_of(lock_at);
    const std::string who = holder > 0 ? fmt::format("process {}", holder) : "another process";
    return Refusal{EBUSY, fmt::format("{} is in use by {}: an interface serves one process at a "
                                      "time; give each its own, or use the fabric",
                                      name, who)};
  }
  // A backlog of one: whoever is refused connects only to learn our pid.
  if (listen(lock.get(), 1) != 0) return Refusal{errno, "port lock: listen failed"};
  return lock;
}

}  // namespace uroce::datapath
