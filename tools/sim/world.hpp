// The stage of a random run: two hosts with memory, completion queues and queue pairs, and the link
// between them, built from a scenario.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tools/sim/completion_oracle.hpp"
#include "tools/sim/host.hpp"
#include "tools/sim/link.hpp"
#include "tools/sim/memory.hpp"
#include "tools/sim/model.hpp"
#include "tools/sim/scenario.hpp"
#include "tools/sim/tamper.hpp"
#include "tools/sim/transcript.hpp"

namespace uroce::sim {

inline constexpr size_t kSharedWords = 4;  // per host, for ATOMICs of all its queue pairs

struct CqState {
  Host* host = nullptr;
  transport::CompletionQueue* cq = nullptr;
  CqMode mode = CqMode::kPolled;
  bool armed = false;
  bool empty_when_armed = false;
  bool poll_planned = false;
};

struct Connection {
  const ConnectionPlan* plan = nullptr;
  std::array<Endpoint, 2> ends;
  bool tearing_down = false;
  bool closed = false;  // torn down, judged, not to be made again
  uint32_t drain_checks = 0;
};

class World {
 public:
  World(const Scenario& scenario, Observer& observer, const Tamper* tamper,
        Transcript::Writer writer);

  // Brings both ends from RESET (or nothing) to RTS and starts their models afresh.
  void connect(Connection& connection);
  Endpoint* find(const Host& host, Qpn qpn);
  void note(std::string_view text) { transcript.line(clock.now(), text); }

  const Scenario scenario;
  Random random;
  VirtualClock clock;
  Transcript transcript;
  Verdict verdict;
  std::array<std::unique_ptr<Memory>, 2> memories;
  std::array<std::unique_ptr<Host>, 2> hosts;
  std::optional<Link> link;
  std::array<AtomicLedgers, 2> words;  // what happened to each host's shared words
  std::array<Window, 2> words_windows;
  std::array<std::deque<CqState>, 2> cqs;
  std::deque<Connection> connections;
  // Bytes that no key grants, hence nobody may ever write.
  struct Gap {
    uint64_t offset = 0;
    uint64_t length = 0;
  };
  std::array<std::vector<Gap>, 2> gaps;

 private:
  struct Layout;  // where the next region of a host lies

  void build_host(uint8_t index, Observer& observer, const Tamper* tamper);
  void build_cqs(uint8_t index);
  void build_endpoint(Endpoint& end, Layout& layout);
  Window grant(Layout& layout, uint64_t length, PdId domain, transport::AccessFlags access);
  void create_queue_pair(Endpoint& end);
  void modify(Endpoint& end, transport::QpState state);

  std::array<PdId, 2> domains_;
  std::array<PdId, 2> foreign_domains_;
  std::map<uint32_t, Endpoint*> by_qpn_;  // slots differ between the hosts
};

}  // namespace uroce::sim
