// `uroce sim`: runs the simulator for one seed or many, or replays one exchange, and prints what
// happened.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "tools/command.hpp"
#include "tools/sim/exchange.hpp"
#include "tools/sim/simulation.hpp"

namespace uroce::tools {
namespace {

struct SimOptions {
  sim::ScenarioOptions scenario;
  uint64_t count = 1;
  bool quiet = false;
  uint32_t mtu = 0;  // 0: the seed chooses
  std::optional<uint32_t> connections, operations, loss;
  std::string exchange;
  uint32_t length = 0;
  std::string mask = "0";
};

void print_line(std::string_view line) {
  fmt::print("{}\n", line);
}

// A run prints its transcript, unless many are run: then only those that fail have something to
// say.
int run_seeds(const SimOptions& options) {
  uint64_t failed = 0;
  uint64_t frames = 0, operations = 0;
  sim::ScenarioOptions scenario = options.scenario;
  for (uint64_t i = 0; i < options.count; ++i, ++scenario.seed) {
    const bool show = !options.quiet && options.count == 1;
    const sim::Report report =
        sim::simulate(scenario, show ? sim::Transcript::Writer(print_line) : nullptr);
    frames += report.frames;
    operations += report.operations;
    for (const std::string& violation : report.violations) {
      fmt::print("seed {}: VIOLATION: {}\n", scenario.seed, violation);
    }
    if (!report.ok()) {
      ++failed;
      fmt::print("replay: {}\n", replay_command(scenario));
    }
    if (options.count == 1) {
      fmt::print(
          "seed {}: {} operations, {} completions, {} failures, {} frames, {:.3f} ms of "
          "virtual time, transcript {:016x}\n",
          scenario.seed, report.operations, report.completions, report.failures, report.frames,
          static_cast<double>(report.virtual_ns) / 1e6, report.transcript_hash);
    }
    std::fflush(stdout);
  }
  fmt::print("{} of {} seeds passed ({} operations, {} frames)\n", options.count - failed,
             options.count, operations, frames);
  return failed == 0 ? kExitOk : kExitFailure;
}

int run_exchange(const SimOptions& options) {
  char* end = nullptr;
  const uint64_t mask = std::strtoull(options.mask.c_str(), &end, 0);
  if (options.mask.empty() || *end != '\0' || mask >= sim::kLossMasks) {
    spdlog::error("--mask is '{}', allowed are 0..{:#x}", options.mask, sim::kLossMasks - 1);
    return kExitUsage;
  }
  const auto known = sim::short_exchanges();
  const auto exchange = std::find_if(known.begin(), known.end(), [&](const sim::Exchange& each) {
    return sim::name_of(each.opcode) == options.exchange && each.length == options.length;
  });
  if (exchange == known.end()) {
    std::string allowed;
    for (const sim::Exchange& each : known) {
      allowed += fmt::format("{}{}/{}", allowed.empty() ? "" : ", ", sim::name_of(each.opcode),
                             each.length);
    }
    spdlog::error("there is no exchange {} of {} bytes; allowed are {}", options.exchange,
                  options.length, allowed);
    return kExitUsage;
  }
  sim::ExchangeRig rig(nullptr, print_line);
  const auto outcome = rig.run(*exchange, mask);
  if (!outcome.violation.empty()) {
    fmt::print("VIOLATION: {}\nreplay: {}\n", outcome.violation, replay_command(*exchange, mask));
    return kExitFailure;
  }
  fmt::print("{} frames, {}\n", outcome.frames,
             outcome.gave_up ? "given up after all retries, as it must be" : "success");
  return kExitOk;
}

int run_sim(SimOptions options) {
  if (!options.exchange.empty()) return run_exchange(options);
  options.scenario.connections = options.connections;
  options.scenario.operations = options.operations;
  options.scenario.loss = options.loss;
  if (options.mtu != 0) options.scenario.mtu = static_cast<Mtu>(options.mtu);
  return run_seeds(options);
}

}  // namespace

Command make_sim_command(CLI::App& parent) {
  auto options = std::make_shared<SimOptions>();
  CLI::App* app = parent.add_subcommand(
      "sim", "Simulate two cards and a bad link on a virtual clock, and judge every packet");
  app->formatter(std::make_shared<UsageFormatter>("uroce sim --seed N [FLAGS]"));
  app->add_option("--seed", options->scenario.seed, "The run to make; the same seed, the same run");
  app->add_option("--count", options->count, "Run as many seeds, from --seed on; prints failures");
  app->add_flag("--quiet", options->quiet, "No transcript");
  app->add_option("--connections", options->connections, "Connections instead of the seed's choice")
      ->check(CLI::Range(1, 8));
  app->add_option("--operations", options->operations, "Operations per end of a connection")
      ->check(CLI::Range(0, 100000));
  app->add_option("--loss", options->loss, "Frames lost per million")
      ->check(CLI::Range(0, 1000000));
  app->add_option("--mtu", options->mtu, "Path MTU in bytes")
      ->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  app->add_flag("--perfect-link", options->scenario.perfect_link, "No impairment");
  app->add_flag("--no-trouble", options->scenario.no_trouble,
                "No operation that must fail, no connection that breaks");
  app->add_flag("--deliver-corrupt", options->scenario.deliver_corrupt,
                "Damaged packets reach the parser; only survival is judged");
  app->add_option("--exchange", options->exchange,
                  "Replay one short exchange instead: SEND, WRITE_IMM, READ, CMP_SWP ...");
  app->add_option("--length", options->length, "Its length in bytes");
  app->add_option("--mask", options->mask, "Bit i loses its i-th frame: 0..0xfff");
  app->footer("A failure prints the command that replays it.");
  return {app, [options] { return run_sim(*options); }};
}

}  // namespace uroce::tools
