// The record of a run: a hash that tells two runs apart, with the text if somebody wants to read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tools/sim/link.hpp"
#include "transport/packet.hpp"
#include "transport/verbs.hpp"

namespace uroce::sim {

class Transcript {
 public:
  using Writer = std::function<void(std::string_view line)>;

  // A null writer: only the hash is kept. A transcript that is not `enabled` does nothing.
  explicit Transcript(bool enabled, Writer writer = nullptr);

  bool enabled() const { return enabled_; }
  void line(Instant now, std::string_view text);
  // FNV-1a over all lines.
  uint64_t hash() const { return hash_; }

 private:
  bool enabled_;
  Writer writer_;
  uint64_t hash_ = 0xcbf29ce484222325;
};

// One line's worth: opcode, destination, PSN, and what the extension headers say.
std::string describe(const transport::PacketView& packet);
// "" for a frame that is simply delivered, else " [lost]", " [duplicated reordered]" and so on.
std::string describe_fate(uint8_t fate);
std::string describe(const transport::Completion& completion);
std::string_view name_of(transport::CompletionStatus status);
std::string_view name_of(transport::SendOpcode opcode);

}  // namespace uroce::sim
