// Hand-shakes with peers, and notices when they go.
#include "datapath/fabric/control_thread.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "datapath/log.hpp"

namespace uroce::datapath {

namespace {

constexpr int kBacklog = 512;
constexpr size_t kStackBytes = 256 << 10;
constexpr int kSocketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

Refusal refuse_errno(const RunDirectory& directory, std::string_view what) {
  const int error = errno;
  return {error, fmt::format("fabric {}: {}: {}", directory.path(), what, strerror(error))};
}

}  // namespace

Result<std::unique_ptr<ControlThread>> ControlThread::start(const RunDirectory& directory,
                                                            SlotClaim& claim, LinkExchange& links) {
  std::unique_ptr<ControlThread> control(new ControlThread(directory, claim, links));
  if (Status status = control->listen_for_peers(); !status) return status.refusal();
  control->list_sockets();
  if (Status status = control->launch(); !status) return status.refusal();
  return control;
}

Status ControlThread::listen_for_peers() {
  auto address = directory_.socket_address(claim_.slot());
  if (!address) return address.refusal();
  waker_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  listener_ = OwnedFd(socket(AF_UNIX, kSocketType, 0));
  if (!waker_ || !listener_) return refuse_errno(directory_, "cannot create its control socket");
  // We hold the slot's lock, so whatever stands there was left by the dead.
  unlinkat(directory_.fd(), RunDirectory::socket_name(claim_.slot()).c_str(), 0);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      listen(listener_.get(), kBacklog) != 0) {
    return refuse_errno(directory_, "cannot listen on its control socket");
  }
  return Done{};
}

Status ControlThread::launch() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const int error = pthread_create(
      &thread_, &attributes,
      [](void* self) -> void* {
        static_cast<ControlThread*>(self)->run();
        return nullptr;
      },
      this);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    errno = error;
    return refuse_errno(directory_, "cannot start its control thread");
  }
  pthread_setname_np(thread_, "uroce-ctl");
  running_ = true;
  return Done{};
}

ControlThread::~ControlThread() {
  stop();
}

void ControlThread::stop() {
  if (!running_) return;
  running_ = false;
  stopping_ = true;
  eventfd_write(waker_.get(), 1);
  pthread_join(thread_, nullptr);
  unlinkat(directory_.fd(), RunDirectory::socket_name(claim_.slot()).c_str(), 0);
  listener_.reset();
  outgoing_.clear();
  incoming_.clear();
}

void ControlThread::abandon_in_child() {
  running_ = false;
  listener_.reset();
  waker_.reset();
  for (const auto& socket : listed_sockets_) {
    if (socket < 0) break;
    close(socket);
  }
}

// True if we are connected to the slot's present holder.
bool ControlThread::is_current(uint8_t slot) const {
  const Target& target = targets_[slot];
  return target.phase.load() == Phase::kConnected &&
         target.generation.load() == claim_.entry(slot).generation.load();
}

void ControlThread::request(uint8_t slot) {
  if (slot == 0 || is_current(slot)) return;
  {
    const std::lock_guard guard(mutex_);
    const Phase phase = targets_[slot].phase;
    if (phase == Phase::kWanted || phase == Phase::kConnecting) return;
    targets_[slot].phase = Phase::kWanted;
  }
  eventfd_write(waker_.get(), 1);
}

bool ControlThread::wait_connected(uint8_t slot, int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  settled_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] {
    const Phase phase = targets_[slot].phase;
    return phase != Phase::kWanted && phase != Phase::kConnecting;
  });
  return targets_[slot].phase == Phase::kConnected;
}

void ControlThread::settle(uint8_t slot, Phase phase, uint32_t generation) {
  const std::lock_guard guard(mutex_);
  targets_[slot].generation = generation;
  targets_[slot].phase = phase;
  settled_.notify_all();
}

void ControlThread::run() {
  while (serve_once()) {
  }
}

bool ControlThread::serve_once() {
  std::vector<pollfd> events;
  events.reserve(2 + outgoing_.size() + incoming_.size());
  events.push_back({waker_.get(), POLLIN, 0});
  events.push_back({listener_.get(), POLLIN, 0});
  for (const Outgoing& peer : outgoing_) events.push_back({peer.socket.get(), POLLIN, 0});
  for (const Incoming& peer : incoming_) events.push_back({peer.socket.get(), POLLIN, 0});
  if (poll(events.data(), events.size(), -1) < 0) return errno == EINTR;
  if (stopping_) return false;
  // Connections first, while positions in `events` are still those of the lists.
  size_t at = 2;
  std::erase_if(outgoing_,
                [&](Outgoing& peer) { return events[at++].revents != 0 && !on_outgoing(peer); });
  std::erase_if(incoming_,
                [&](Incoming& peer) { return events[at++].revents != 0 && !on_incoming(peer); });
  if (events[0].revents != 0) {
    eventfd_t ignored = 0;
    eventfd_read(waker_.get(), &ignored);
    connect_wanted();
  }
  if (events[1].revents != 0) accept_peers();
  list_sockets();
  return true;
}

void ControlThread::list_sockets() {
  size_t at = 0;
  for (const Outgoing& peer : outgoing_) listed_sockets_[at++] = peer.socket.get();
  for (const Incoming& peer : incoming_) listed_sockets_[at++] = peer.socket.get();
  listed_sockets_[at] = -1;
}

void ControlThread::connect_wanted() {
  for (size_t i = 1; i < kSlotCount; ++i) {
    const auto slot = static_cast<uint8_t>(i);
    if (targets_[slot].phase != Phase::kWanted) continue;
    close_outgoing(slot);
    settle(slot, Phase::kConnecting, 0);
    if (Status status = connect_to(slot); !status) {
      log(LogLevel::kDebug, "fabric slot {}: {}", slot, status.refusal().why);
      settle(slot, Phase::kFailed, 0);
    }
  }
}

Status ControlThread::connect_to(uint8_t slot) {
  auto address = directory_.socket_address(slot);
  if (!address) return address.refusal();
  Outgoing peer;
  peer.slot = slot;
  peer.socket = OwnedFd(socket(AF_UNIX, kSocketType, 0));
  if (!peer.socket) return refuse_errno(directory_, "cannot create a socket");
  if (connect(peer.socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) !=
      0) {
    return Refusal{errno, fmt::format("nobody answers at its socket: {}", strerror(errno))};
  }
  if (!is_same_user(peer.socket.get())) {
    return Refusal{EPERM, "its socket belongs to another user"};
  }
  auto memory = RingMemory::create(RingLayout::kDefaultCapacity);
  if (!memory) return memory.refusal();
  ControlMessage hello =
      make_message(ControlMessage::Kind::kHello, claim_.slot(), claim_.generation());
  hello.ring_capacity = memory->capacity();
  if (Status sent = send_message(peer.socket.get(), hello, memory->fd()); !sent) return sent;
  memory->close_fd();
  peer.link_id = ++last_link_id_;
  peer.link = std::make_unique<TxLink>(peer.link_id, slot, std::move(*memory), claim_.entry(slot));
  outgoing_.push_back(std::move(peer));
  return Done{};
}

// A former connection to that slot, if any; its holder has changed.
void ControlThread::close_outgoing(uint8_t slot) {
  std::erase_if(outgoing_, [&](const Outgoing& peer) {
    if (peer.slot != slot) return false;
    if (!peer.link) links_.remove(peer.link_id);
    return true;
  });
}

bool ControlThread::on_outgoing(Outgoing& peer) {
  const bool was_connected = peer.link == nullptr;
  auto received = receive_message(peer.socket.get());
  if (!received && received.refusal().error == EAGAIN) return true;
  if (received && !was_connected && received->message.kind == ControlMessage::Kind::kWelcome &&
      received->message.slot == peer.slot) {
    links_.add(std::move(peer.link));
    settle(peer.slot, Phase::kConnected, received->message.generation);
    return true;
  }
  if (!received && received.refusal().error != ECONNRESET) {
    log(LogLevel::kWarning, "fabric slot {}: {}", peer.slot, received.refusal().why);
  }
  if (was_connected) links_.remove(peer.link_id);
  settle(peer.slot, was_connected ? Phase::kIdle : Phase::kFailed, 0);
  return false;
}

void ControlThread::accept_peers() {
  for (;;) {
    OwnedFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        // The caller stays in the backlog; do not spin until the process has descriptors again.
        const timespec pause{0, 10'000'000};
        nanosleep(&pause, nullptr);
      }
      return;
    }
    if (incoming_.size() >= kMaxIncoming || !is_same_user(socket.get())) continue;
    Incoming peer;
    peer.socket = std::move(socket);
    incoming_.push_back(std::move(peer));
  }
}

bool ControlThread::on_incoming(Incoming& peer) {
  auto received = receive_message(peer.socket.get());
  if (!received && received.refusal().error == EAGAIN) return true;
  Status status = received ? greet(peer, std::move(*received)) : Status(received.refusal());
  if (status) return true;
  if (peer.greeted) {
    links_.remove(peer.link_id);
    return false;
  }
  if (status.refusal().error != ECONNRESET) {
    log(LogLevel::kWarning, "fabric: refused a connection: {}", status.refusal().why);
    // Best effort: the peer learns why, then that the connection is closed.
    (void)send_message(
        peer.socket.get(),
        make_message(ControlMessage::Kind::kRefused, claim_.slot(), claim_.generation()), -1);
  }
  return false;
}

// The first message of a peer: maps its ring, which the lane then reads.
Status ControlThread::greet(Incoming& peer, ReceivedMessage received) {
  const ControlMessage& hello = received.message;
  if (peer.greeted) return Refusal{EPROTO, "the peer greeted twice"};
  if (hello.kind != ControlMessage::Kind::kHello || !received.attached) {
    return Refusal{EPROTO, "the peer's first message is no HELLO with a ring"};
  }
  if (hello.slot == 0 || hello.slot >= kSlotCount ||
      hello.generation != claim_.entry(static_cast<uint8_t>(hello.slot)).generation.load()) {
    return Refusal{EPROTO,
                   fmt::format("the peer says it is slot {}, which it does not hold", hello.slot)};
  }
  auto memory = RingMemory::attach(received.attached.get(), hello.ring_capacity);
  if (!memory) return memory.refusal();
  peer.link_id = ++last_link_id_;
  links_.add(
      std::make_unique<RxLink>(peer.link_id, static_cast<uint8_t>(hello.slot), std::move(*memory)));
  peer.greeted = true;
  return send_message(
      peer.socket.get(),
      make_message(ControlMessage::Kind::kWelcome, claim_.slot(), claim_.generation()), -1);
}

}  // namespace uroce::datapath
