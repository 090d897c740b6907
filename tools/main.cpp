// The `uroce` command line: finds the verb and runs it.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/command.hpp"
#include "tools/version.hpp"

namespace uroce::tools {
namespace {

// Our own messages are few and go to stderr, as one line each: "uroce: …".
void set_up_messages() {
  auto logger = spdlog::stderr_logger_st("uroce");
  logger->set_pattern("%n: %v");
  spdlog::set_default_logger(std::move(logger));
}

// One line, whatever the parser says; the verb's help is where to look next.
int refuse_usage(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  std::string text = error.what();
  std::ranges::replace(text, '\n', ' ');
  spdlog::error("{} (see uroce {}--help)", text,
                verbs.empty() ? std::string() : verbs.front()->get_name() + " ");
  return kExitUsage;
}

int run_main(int argc, char** argv) {
  set_up_messages();
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto separator = std::ranges::find(words, "--");
  const std::vector<std::string> operands(separator, words.end());
  words.erase(separator, words.end());

  CLI::App app("uroce: a RoCEv2 network card in user space", "uroce");
  app.set_version_flag("--version", std::string("uroce ") + kVersion, "Print the version");
  app.formatter(std::make_shared<UsageFormatter>("uroce VERB [FLAGS]"));
  app.require_subcommand(0, 1);
  app.allow_extras();
  app.footer(
      "uroce VERB --help describes each verb.\n\n"
      "  uroce run -- ib_write_bw -d uroce0              in one terminal,\n"
      "  uroce run -- ib_write_bw -d uroce0 127.0.0.1    in another");
  const Command commands[] = {make_run_command(app, operands), make_devices_command(app),
                              make_sim_command(app)};

  try {
    std::ranges::reverse(words);  // CLI11 takes them last first
    app.parse(words);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help and --version
  } catch (const CLI::ParseError& error) {
    return refuse_usage(app, error);
  }
  if (app.get_subcommands().empty()) {
    const std::vector<std::string> extras = app.remaining();
    spdlog::error("{} (see uroce --help)",
                  extras.empty() ? "a verb is missing"
                                 : fmt::format("there is no verb or flag '{}'", extras.front()));
    return kExitUsage;
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const std::string verb = command.app->get_name();
    std::vector<std::string> surplus = app.remaining(true);
    surplus.insert(surplus.end(), operands.begin(), operands.end());
    if (verb != "run" && !surplus.empty()) {
      spdlog::error("uroce {} does not know '{}' (see uroce {} --help)", verb, surplus.front(),
                    verb);
      return kExitUsage;
    }
    return command.run();
  }
  return kExitUsage;
}

}  // namespace
}  // namespace uroce::tools

int main(int argc, char** argv) {
  return uroce::tools::run_main(argc, argv);
}
