// The application of a random run: draws operations and receives and posts them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/sim/model.hpp"
#include "tools/sim/world.hpp"

namespace uroce::sim {

class Workload {
 public:
  explicit Workload(World& world) : world_(world) {}

  // Posts one operation if the queue and the buffers have room; false if not. `last`: nothing
  // follows that could stand for its completion, so it is signaled, most often.
  bool post_operation(Endpoint& end, bool last);
  // Posts one receive if the queue and the buffers have room; false if not.
  bool post_receive(Endpoint& end);

 private:
  Operation draw_operation(Endpoint& end);
  void draw_kind(Endpoint& end, Operation& operation);
  void draw_length(Endpoint& end, Operation& operation);
  void draw_flags(Endpoint& end, Operation& operation, bool last);
  void aim(Endpoint& end, Operation& operation);
  void spoil(Endpoint& end, Operation& operation);
  // Buffers that add up to `length` bytes, in up to `max_pieces`; none if the pools are full.
  std::optional<std::vector<Piece>> draw_pieces(Endpoint& end, uint32_t length,
                                                uint32_t max_pieces);
  std::vector<transport::Sge> scatter_list(const Endpoint& end, const std::vector<Piece>& pieces);
  void judge_post(const Endpoint& end, transport::PostError error, bool full,
                  std::string_view queue);

  World& world_;
};

}  // namespace uroce::sim
