// What every verb of the command line is to main: its options, and what it does.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace uroce::tools {

// Exit statuses of uroce itself; `uroce run` otherwise ends as its command does.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;  // a wrong flag, value or set-up: nothing was started
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Help with a usage line of our own words.
class UsageFormatter : public CLI::Formatter {
 public:
  explicit UsageFormatter(std::string usage) : usage_(std::move(usage)) { column_width(22); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: " + usage_ + "\n";
  }

 private:
  std::string usage_;
};

struct Command {
  CLI::App* app = nullptr;   // owned by its parent
  std::function<int()> run;  // called after parsing; gives the exit status
};

// `operands` is what stood behind "--" on the command line; it must outlive the command.
Command make_run_command(CLI::App& parent, const std::vector<std::string>& operands);
Command make_sim_command(CLI::App& parent);
Command make_devices_command(CLI::App& parent);

}  // namespace uroce::tools
