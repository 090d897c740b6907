// Builds hosts, regions and queue pairs, and connects them.
#include "tools/sim/world.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace uroce::sim {

using transport::QpAttributes;
using transport::QpState;

namespace {

constexpr uint64_t kGapBytes = 64;      // between regions
constexpr uint64_t kSmallWindow = 256;  // bytes of the regions that serve for faults
constexpr uint64_t kPoolSlack = 4096;   // bytes

uint64_t pool_length(const ConnectionPlan& plan) {
  return 5 * plan.max_length + kPoolSlack;
}
uint64_t target_length(const ConnectionPlan& plan) {
  return 3 * plan.max_length + kGapBytes;
}

uint64_t memory_length(const Scenario& scenario) {
  uint64_t length = 64 * kGapBytes;
  for (const ConnectionPlan& plan : scenario.connections) {
    length += 2 * pool_length(plan) + target_length(plan) + 2 * kSmallWindow + 8 * kGapBytes;
  }
  return length;
}

transport::HcaConfig hca_config(uint8_t index, uint64_t seed) {
  transport::HcaConfig config;
  config.slot = static_cast<uint8_t>(index + 1);
  config.seed = seed;
  // Small tables: thousands of these are built.
  config.limits.max_qp = 64;
  config.limits.max_mr = 256;
  config.limits.max_cq = 16;
  config.limits.max_pd = 16;
  return config;
}

}  // namespace

struct World::Layout {
  uint8_t host = 0;
  uint64_t next = 0;
};

World::World(const Scenario& chosen, Observer& observer, const Tamper* tamper,
             Transcript::Writer writer)
    : scenario(chosen), random(chosen.seed ^ 0x5eed), transcript(true, std::move(writer)) {
  for (uint8_t i = 0; i < 2; ++i) build_host(i, observer, tamper);
  link.emplace(
      clock, scenario.link, random.split(),
      [this](Frame frame) { hosts[1 - frame.source]->arrive(std::move(frame)); },
      [this](uint8_t source) { hosts[source]->wake(); });
  std::array<Layout, 2> layouts{Layout{0, 0}, Layout{1, 0}};
  for (uint8_t i = 0; i < 2; ++i) {
    hosts[i]->connect(*link);
    build_cqs(i);
    const Window& window = words_windows[i] =
        grant(layouts[i], kSharedWords * 8, domains_[i], kAllRights);
    for (size_t word = 0; word < kSharedWords; ++word) {
      uint64_t value = 0;
      std::memcpy(&value, memories[i]->at(window.offset + word * 8), sizeof value);
      words[i].emplace_back(value);
      memories[i]->expect(window.offset + word * 8, 8, nullptr);
    }
  }
  uint32_t next_id = 0;
  for (const ConnectionPlan& plan : scenario.connections) {
    Connection& connection = connections.emplace_back();
    connection.plan = &plan;
    for (uint8_t side = 0; side < 2; ++side) {
      Endpoint& end = connection.ends[side];
      end.id = next_id++;
      end.host = hosts[side].get();
      end.memory = memories[side].get();
      end.peer = &connection.ends[1 - side];
      end.plan = &plan.ends[side];
      end.connection = &plan;
      end.random = random.split();
      build_endpoint(end, layouts[side]);
    }
  }
  for (uint8_t i = 0; i < 2; ++i) {
    gaps[i].push_back({layouts[i].next, memories[i]->size() - layouts[i].next});
  }
}

void World::build_host(uint8_t index, Observer& observer, const Tamper* tamper) {
  memories[index] = std::make_unique<Memory>(memory_length(scenario), random.split());
  const Host::Parts parts{clock, transcript, verdict, observer, tamper};
  hosts[index] = std::make_unique<Host>(index, hca_config(index, random.next()),
                                        scenario.hosts[index].pace, random.split(), parts);
  transport::Hca& hca = hosts[index]->hca();
  domains_[index] = hca.create_pd().value();
  foreign_domains_[index] = hca.create_pd().value();
}

void World::build_cqs(uint8_t index) {
  // Room for everything that every queue pair could have outstanding, rounded up as it may be.
  uint32_t entries = 16;
  for (const ConnectionPlan& plan : scenario.connections) {
    const auto& asked = plan.ends[index].capabilities;
    entries += 2 * (asked.max_send_wr + asked.max_recv_wr) + 32;
  }
  for (const CqMode mode : scenario.hosts[index].cqs) {
    CqState& state = cqs[index].emplace_back();
    state.host = hosts[index].get();
    state.mode = mode;
    state.cq = hosts[index]->hca().create_cq(entries, &state).value();
  }
}

Window World::grant(Layout& layout, uint64_t length, PdId domain, transport::AccessFlags access) {
  Memory& memory = *memories[layout.host];
  Window window;
  gaps[layout.host].push_back({layout.next, kGapBytes});
  window.offset = (layout.next + kGapBytes + 7) / 8 * 8;
  window.length = length;
  layout.next = window.offset + length;
  transport::RegionAttributes region;
  region.pd = domain;
  region.address = memory.at(window.offset);
  region.length = length;
  region.access = access;
  // Addresses as the application has them, or as it chose (zero-based or not).
  switch (random.below(3)) {
    case 0:
      // Not the real address: it differs from run to run, and the transcript would with it.
      region.iova = (uint64_t{layout.host} + 0x7f) << 40 | window.offset;
      break;
    case 1:
      region.access |= transport::kZeroBased;
      break;
    case 2:
      region.iova = random.next() >> 16 & ~uint64_t{0xfff};
      break;
  }
  window.address = region.iova;
  window.rkey = Rkey{hosts[layout.host]->hca().register_region(region).value()};
  return window;
}

void World::build_endpoint(Endpoint& end, Layout& layout) {
  const PdId domain = domains_[layout.host];
  end.target = grant(layout, target_length(*end.connection), domain, kAllRights);
  end.read_only = grant(layout, kSmallWindow, domain, transport::kRemoteRead);
  end.foreign = grant(layout, kSmallWindow, foreign_domains_[layout.host], kAllRights);
  for (int i = 0; i < 2; ++i) {
    const Window local =
        grant(layout, pool_length(*end.connection), domain, transport::kLocalWrite);
    end.pools.push_back(
        {Pool(local.offset, local.length), local.offset, local.address, Lkey{local.rkey.value}});
  }
  end.words = words_windows[layout.host];
}

void World::create_queue_pair(Endpoint& end) {
  auto& host_cqs = cqs[end.host->index()];
  transport::QpInitAttributes attributes;
  attributes.pd = domains_[end.host->index()];
  attributes.send_cq = host_cqs[end.random.below(host_cqs.size())].cq;
  attributes.recv_cq = host_cqs[end.random.below(host_cqs.size())].cq;
  attributes.capabilities = end.plan->capabilities;
  attributes.signal_all = end.plan->signal_all;
  attributes.owner = &end;
  end.qp = end.host->hca().create_qp(attributes, clock.now()).value();
  end.qpn = end.qp->qpn();
  end.granted = end.qp->init_attributes().capabilities;
  by_qpn_[end.qpn.value] = &end;
}

void World::connect(Connection& connection) {
  for (Endpoint& end : connection.ends) {
    if (end.qp == nullptr) create_queue_pair(end);
    end.flow = Flow{};
    end.wire = WireHistory{};
    end.receives.clear();
    end.receives_completed = 0;
    end.receive_failed = end.moved_to_error = end.forgotten = false;
    end.failure.reset();
    end.unsignaled = 0;
    // Half of the flows start just before the wrap.
    end.flow.start =
        Psn(end.random.coin() ? Psn::kMask - static_cast<uint32_t>(end.random.below(64))
                              : static_cast<uint32_t>(end.random.next()));
  }
  for (const QpState state : {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts}) {
    for (Endpoint& end : connection.ends) modify(end, state);
  }
  for (Endpoint& end : connection.ends) {
    end.connected = true;
    note(fmt::format("{} connected: start psn {:#x} mtu {}", name_of(end), end.flow.start.value(),
                     bytes_of(end.connection->mtu)));
  }
  connection.tearing_down = false;
  connection.drain_checks = 0;
}

void World::modify(Endpoint& end, QpState state) {
  QpAttributes attributes;
  attributes.state = state;
  transport::QpAttributeMask mask = transport::kQpState;
  switch (state) {
    case QpState::kInit:
      attributes.access = kAllRights;
      mask |= transport::kQpPkeyIndex | transport::kQpPort | transport::kQpAccessFlags;
      break;
    case QpState::kRtr:
      attributes.path_mtu = end.connection->mtu;
      attributes.destination_qpn = end.peer->qpn;
      attributes.rq_psn = end.peer->flow.start;
      attributes.max_dest_rd_atomic = end.peer->plan->max_rd_atomic;
      attributes.min_rnr_timer = end.plan->min_rnr_timer;
      attributes.address.source_gid = end.host->gid();
      attributes.address.destination_gid = end.peer->host->gid();
      attributes.address.path = end.host->path();
      mask |= transport::kQpAv | transport::kQpPathMtu | transport::kQpDestQpn |
              transport::kQpRqPsn | transport::kQpMaxDestRdAtomic | transport::kQpMinRnrTimer;
      break;
    case QpState::kRts:
      attributes.sq_psn = end.flow.start;
      attributes.ack_timeout = end.plan->ack_timeout;
      attributes.retry_count = end.plan->retry_count;
      attributes.rnr_retry = end.plan->rnr_retry;
      attributes.max_rd_atomic = end.plan->max_rd_atomic;
      mask |= transport::kQpSqPsn | transport::kQpTimeout | transport::kQpRetryCnt |
              transport::kQpRnrRetry | transport::kQpMaxRdAtomic;
      break;
    case QpState::kReset:
    case QpState::kSqd:
    case QpState::kSqe:
    case QpState::kError:
    case QpState::kUnknown:
      break;
  }
  const auto done = end.host->hca().modify_qp(*end.qp, attributes, mask, clock.now());
  if (!done.ok()) {
    verdict.violate(fmt::format("{}: modify refused: {}", name_of(end), done.refusal().why));
  }
  end.host->wake();
}

Endpoint* World::find(const Host& host, Qpn qpn) {
  const auto at = by_qpn_.find(qpn.value);
  return at == by_qpn_.end() || at->second->host != &host ? nullptr : at->second;
}

}  // namespace uroce::sim
