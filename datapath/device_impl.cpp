// Control verbs under the lane lock, routes, and the end of a device.
#include "datapath/device_impl.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "datapath/counters.hpp"
#include "datapath/ethdev/ethdev.hpp"
#include "datapath/fabric/fabric_addresses.hpp"
#include "datapath/fabric/fabric_wire.hpp"
#include "datapath/fork_guard.hpp"
#include "datapath/log.hpp"

namespace uroce::datapath {

namespace {

// How long close waits for peers to take what was sent (DESIGN 5).
constexpr int64_t kLingerNs = 50'000'000;
// How long modify_qp waits for the next hop's address, as the kernel's address resolution does.
constexpr int64_t kResolveNs = 1'000'000'000;
// An application thread that found nothing this often in a row gives its CPU away.
constexpr uint32_t kEmptyPollsBeforeYieldToPeer = 32;
constexpr uint32_t kEmptyPollsBeforeYield = 512;
// One that has waited for a millisecond or so, and was preempted meanwhile, sleeps for this long
// instead: a yield gives nothing to processes of other sessions, and with many of them the spinners
// starve those that they wait for.
constexpr uint32_t kEmptyPollsBeforeSleep = 16384;
constexpr timespec kContendedSleep{0, 50'000};

uint64_t random_seed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) {
    seed = static_cast<uint64_t>(Clock::shared().now().ns) ^ static_cast<uint64_t>(getpid()) << 40;
  }
  return seed;
}

std::vector<Gid> addresses_of(const DeviceDescription& description) {
  std::vector<Gid> gids;
  for (const GidEntry& entry : description.gids) {
    if (!entry.gid.is_zero()) gids.push_back(entry.gid);
  }
  return gids;
}

Result<std::unique_ptr<Wire>> open_wire(const Config& config, const DeviceDescription& self) {
  switch (config.wire) {
    case WireKind::kFabric:
      return open_fabric_wire(config, self);
    case WireKind::kNetdev:
      return open_ethdev_wire(config, self);
  }
  return Refusal{EINVAL, "no such wire"};
}

// True if the scheduler took the CPU from this thread since it was last asked.
bool was_preempted() {
  static thread_local int64_t seen = 0;
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return std::exchange(seen, usage.ru_nivcsw) != usage.ru_nivcsw;
}

void give_cpu_away(uint32_t empty_polls) {
  if (empty_polls >= kEmptyPollsBeforeSleep && was_preempted()) {
    nanosleep(&kContendedSleep, nullptr);
  } else {
    sched_yield();
  }
}

}  // namespace

Result<std::vector<DeviceDescription>> describe_devices(const Config& config) {
  return config.wire == WireKind::kNetdev ? describe_netdev(config)
                                          : describe_fabric_devices(config);
}

Result<std::unique_ptr<DeviceImpl>> DeviceImpl::create(const Config& config,
                                                       const DeviceDescription& description) {
  auto wire = open_wire(config, description);
  if (!wire) return wire.refusal();
  transport::HcaConfig hca;
  hca.slot = (*wire)->slot();
  hca.seed = random_seed();
  hca.active_mtu = std::min(description.active_mtu, (*wire)->max_mtu());
  return std::unique_ptr<DeviceImpl>(new DeviceImpl(config, description, std::move(*wire), hca));
}

DeviceImpl::DeviceImpl(const Config& config, DeviceDescription description,
                       std::unique_ptr<Wire> wire, const transport::HcaConfig& hca)
    : config_(config),
      description_(std::move(description)),
      limits_(hca.limits),
      epoch_(ForkGuard::epoch()),
      lane_(std::move(wire), hca, addresses_of(description_)),
      thread_(std::make_unique<ProgressThread>(lane_, config_,
                                               fmt::format("uroce-{:.9}", description_.name))) {}

DeviceImpl::~DeviceImpl() {
  thread_.reset();
  lane_.run_for_application();
  write_stats();
  lane_.wire().close_gracefully(kLingerNs);
}

void DeviceImpl::flush_at_exit() {
  if (!alive()) return;
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (lane_.run_for_application() != Lane::Run::kBusy) break;
    sched_yield();
  }
  write_stats();
}

bool DeviceImpl::alive() const {
  return ForkGuard::is_current(epoch_);
}

Result<PdId> DeviceImpl::create_pd() {
  return lane_.with_hca([](transport::Hca& hca, Instant) { return hca.create_pd(); });
}

Status DeviceImpl::destroy_pd(PdId pd) {
  return lane_.with_hca([&](transport::Hca& hca, Instant) { return hca.destroy_pd(pd); });
}

Result<uint32_t> DeviceImpl::register_region(const transport::RegionAttributes& attributes) {
  return lane_.with_hca(
      [&](transport::Hca& hca, Instant) { return hca.register_region(attributes); });
}

Status DeviceImpl::deregister_region(Lkey key) {
  return lane_.with_hca([&](transport::Hca& hca, Instant) { return hca.deregister_region(key); });
}

Result<transport::CompletionQueue*> DeviceImpl::create_cq(uint32_t entries, void* owner) {
  return lane_.with_hca(
      [&](transport::Hca& hca, Instant) { return hca.create_cq(entries, owner); });
}

Status DeviceImpl::destroy_cq(transport::CompletionQueue& cq) {
  return lane_.with_hca([&](transport::Hca& hca, Instant) { return hca.destroy_cq(cq); });
}

Result<transport::QueuePair*> DeviceImpl::create_qp(const transport::QpInitAttributes& attributes) {
  return lane_.with_hca(
      [&](transport::Hca& hca, Instant now) { return hca.create_qp(attributes, now); });
}

Result<std::unique_ptr<Path>> DeviceImpl::resolve(const transport::AddressVector& address,
                                                  Qpn destination) {
  auto path = lane_.wire().open_path(address, destination);
  if (!path) return path;
  if (lane_.wire().wait_resolved(**path, kResolveNs)) return path;
  if (config_.wire == WireKind::kFabric) return path;  // a peer that has gone: let retries tell
  return Refusal{EHOSTUNREACH,
                 "modify_qp: no answer from the next hop to the destination GID; "
                 "check that the peer is up and its address is right"};
}

Status DeviceImpl::modify_qp(transport::QueuePair& qp, const transport::QpAttributes& attributes,
                             transport::QpAttributeMask mask) {
  transport::QpAttributes resolved = attributes;
  std::unique_ptr<Path> path;
  if ((mask & transport::kQpAv) != 0) {
    const Qpn destination = (mask & transport::kQpDestQpn) != 0 ? attributes.destination_qpn
                                                                : query_qp(qp).destination_qpn;
    auto opened = resolve(attributes.address, destination);
    if (!opened) return opened.refusal();
    path = std::move(*opened);
    resolved.address.path = path.get();
  }
  Status done = lane_.with_hca(
      [&](transport::Hca& hca, Instant now) { return hca.modify_qp(qp, resolved, mask, now); });
  if (done && path != nullptr) {
    const std::lock_guard hold(paths_mutex_);
    std::swap(paths_[&qp], path);
  }
  return done;
}

transport::QpAttributes DeviceImpl::query_qp(const transport::QueuePair& qp) {
  return lane_.with_hca([&](transport::Hca& hca, Instant) { return hca.query_qp(qp); });
}

Status DeviceImpl::destroy_qp(transport::QueuePair& qp) {
  Status done =
      lane_.with_hca([&](transport::Hca& hca, Instant now) { return hca.destroy_qp(qp, now); });
  if (done) {
    const std::lock_guard hold(paths_mutex_);
    paths_.erase(&qp);
  }
  return done;
}

bool DeviceImpl::progress() {
  // Per thread: how often in a row it found nothing to do.
  static thread_local uint32_t empty_polls = 0;
  const Lane::Run ran = lane_.run_for_application();
  if (ran == Lane::Run::kWorked) {
    empty_polls = 0;
    return true;
  }
  ++empty_polls;
  const bool peer_waits = empty_polls % kEmptyPollsBeforeYieldToPeer == 0 &&
                          lane_.wire().peer_shares_cpu(lane_.application_cpu());
  if (peer_waits || empty_polls % kEmptyPollsBeforeYield == 0) give_cpu_away(empty_polls);
  return ran != Lane::Run::kBusy;
}

void DeviceImpl::expect_sleep() {
  lane_.run_for_application();
  if (lane_.unfinished()) lane_.wire().wake();
}

transport::HcaCounters DeviceImpl::counters() {
  return lane_.with_hca([](transport::Hca& hca, Instant) { return hca.counters(); });
}

// For tests: $UROCE_STATS_DIR/<pid>-<device> gets a line "name value" for each counter.
void DeviceImpl::write_stats() {
  const char* const directory = getenv("UROCE_STATS_DIR");
  if (directory == nullptr || *directory == '\0') return;
  const std::string path = fmt::format("{}/{}-{}", directory, getpid(), description_.name);
  std::string text;
  for (const auto& [name, value] : named_counters(counters(), wire_counters())) {
    text += fmt::format("{} {}\n", name, value);
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    log(LogLevel::kWarning, "cannot write counters to {} ($UROCE_STATS_DIR)", path);
  }
  if (fd >= 0) ::close(fd);
}

}  // namespace uroce::datapath
