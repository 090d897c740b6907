// Random runs: each seed is a scenario of its own, judged by all oracles.
#include <cstdlib>
#include <string>

#include "tests/catch.hpp"
#include "tools/sim/simulation.hpp"

namespace uroce::sim {
namespace {

constexpr uint64_t kDefaultSeeds = 320;

uint64_t from_environment(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Runs the seeds that the environment names; fails on the first violation with the command that
// replays it.
void run_seeds(ScenarioOptions options, uint64_t count) {
  uint64_t operations = 0, failures = 0;
  for (uint64_t i = 0; i < count; ++i, ++options.seed) {
    const Report report = simulate(options);
    if (!report.ok()) {
      FAIL(report.violations.front() << "\nreplay: " << replay_command(options));
    }
    operations += report.operations;
    failures += report.failures;
  }
  // The runs did something, or they prove nothing.
  CHECK(operations > 10 * count);
  if (!options.no_trouble) CHECK(failures > count / 10);
}

}  // namespace

TEST_CASE("every random run satisfies every oracle", "[seeds]") {
  ScenarioOptions options;
  options.seed = from_environment("UROCE_SIM_FIRST_SEED", 1);
  run_seeds(options, from_environment("UROCE_SIM_SEEDS", kDefaultSeeds));
}

TEST_CASE("damaged packets that pass the ICRC write nothing outside granted regions", "[seeds]") {
  ScenarioOptions options;
  options.seed = from_environment("UROCE_SIM_FIRST_SEED", 1);
  options.deliver_corrupt = true;
  run_seeds(options, from_environment("UROCE_SIM_SEEDS", kDefaultSeeds) / 4);
}

TEST_CASE("over a perfect link nothing is retransmitted and nothing fails", "[seeds]") {
  ScenarioOptions options;
  options.perfect_link = options.no_trouble = true;
  for (options.seed = 1; options.seed <= 20; ++options.seed) {
    const Report report = simulate(options);
    if (!report.ok()) {
      FAIL(report.violations.front() << "\nreplay: " << replay_command(options));
    }
    CHECK(report.completions >= report.operations / 8);
  }
}

TEST_CASE("the same seed gives the same run, another seed another", "[seeds]") {
  ScenarioOptions options;
  std::string first, second;
  options.seed = 7;
  const Report once =
      simulate(options, [&](std::string_view line) { first.append(line).push_back('\n'); });
  const Report again =
      simulate(options, [&](std::string_view line) { second.append(line).push_back('\n'); });
  CHECK(once.transcript_hash == again.transcript_hash);
  CHECK(first == second);
  CHECK(first.size() > 1000);
  options.seed = 8;
  CHECK(simulate(options).transcript_hash != once.transcript_hash);
}

TEST_CASE("the replay command names everything that was chosen", "[parts]") {
  ScenarioOptions options;
  options.seed = 17;
  CHECK(replay_command(options) == "uroce sim --seed 17");
  options.loss = 1000;
  options.mtu = Mtu::k256;
  options.deliver_corrupt = true;
  CHECK(replay_command(options) == "uroce sim --seed 17 --loss 1000 --mtu 256 --deliver-corrupt");
}

}  // namespace uroce::sim
