// What an HCA holds: the engine that queue pairs share, and the tables of the control path.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "transport/engine.hpp"
#include "transport/hca.hpp"
#include "transport/qp_table.hpp"

namespace uroce::transport {

struct Hca::State {
  State(const HcaConfig& config, EventSink& events)
      : engine(config, events), qps(config.slot, config.seed) {}

  Engine engine;
  QpTable qps;
  std::unordered_map<uint32_t, uint32_t> pd_users;  // regions and QPs by PdId; every PD has a row
  uint32_t next_pd = 1;
  std::unordered_map<CompletionQueue*, std::unique_ptr<CompletionQueue>> cqs;
};

}  // namespace uroce::transport
