// What all queue pairs of one HCA share: memory, timers, counters, events and service queues.
#pragma once

#include <algorithm>

#include "transport/completion_queue.hpp"
#include "transport/hca.hpp"
#include "transport/memory_table.hpp"
#include "transport/rc_queue_pair.hpp"

namespace uroce::transport {

struct Engine {
  Engine(const HcaConfig& hca_config, EventSink& event_sink)
      : config(hca_config),
        events(event_sink),
        regions({hca_config.limits.max_mr, hca_config.limits.max_mr_size}, hca_config.seed) {
    config.limits.max_rd_atomic = std::min(config.limits.max_rd_atomic, kMaxFetches);
  }

  HcaConfig config;
  EventSink& events;
  HcaCounters counters;
  ServiceQueue<&RcQueuePair::reply_hook> replies;
  ServiceQueue<&RcQueuePair::work_hook> work;
  ServiceQueue<&RcQueuePair::work_hook> parked;  // until the next poll_transmit
  OutgoingPacket packet;                         // the one under construction
  MemoryTable regions;
  TimerWheel timers;

  void drop(DropReason reason) { ++counters.drops[static_cast<size_t>(reason)]; }
};

}  // namespace uroce::transport
