// Starts EAL and cleans up after it.
#include "datapath/ethdev/eal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "datapath/ethdev/quiet_thread.hpp"
#include "datapath/log.hpp"

namespace uroce::datapath {
namespace {

constexpr std::string_view kPrefix = "uroce-";

// Trivially destroyed, as EAL's threads may log while the process exits.
constinit std::mutex last_error_mutex;
char last_error[256];

ssize_t on_dpdk_log(void*, const char* text, size_t size) {
  std::string_view line(text, size);
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  log(LogLevel::kInfo, "dpdk: {}", line);
  const std::lock_guard lock(last_error_mutex);
  last_error[line.copy(last_error, sizeof(last_error) - 1)] = 0;
  return static_cast<ssize_t>(size);
}

// "0@(0,1,5)": one lcore that floats over the CPUs that this process may use. The default would
// start a worker on each.
std::string floating_lcore() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  std::string cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu);
  }
  return fmt::format("0@({})", cpus.empty() ? "0" : cpus);
}

// Removes our folder, which nothing reads without shared files, and those of processes that were
// killed while they started.
void sweep_runtime_folders() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path own = rte_eal_get_runtime_dir();
  fs::remove_all(own, ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(own.parent_path(), ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    pid_t pid = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, pid);
    if (error != std::errc{} || rest != end || pid <= 0) continue;
    if (kill(pid, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

// Gives EAL's own threads, which are "eal-…", names that say whose they are.
void rename_eal_threads() {
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const std::filesystem::path comm = task.path() / "comm";
    std::string name;
    std::getline(std::ifstream(comm), name);
    if (name.starts_with("eal-")) std::ofstream(comm) << "uroce-" << name.substr(0, 8);
  }
}

// This process's descriptors, by what they are open on.
std::map<int, std::string> open_descriptors() {
  std::map<int, std::string> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    out.emplace(fd, std::filesystem::read_symlink(entry.path(), ignored).string());
  }
  return out;
}

// Keeps EAL's descriptors out of programs that this process executes. EAL does not tell which they
// are: those that are new, and of the kinds that it opens.
void close_on_exec(const std::map<int, std::string>& earlier) {
  constexpr std::array<std::string_view, 4> kKinds = {"/memfd:nohuge", "anon_inode:[eventpoll]",
                                                      "anon_inode:[timerfd]", "pipe:"};
  for (const auto& [fd, target] : open_descriptors()) {
    const auto is_of = [&name = target](std::string_view kind) { return name.starts_with(kind); };
    const auto before = earlier.find(fd);
    if (before != earlier.end() && before->second == target) continue;
    if (std::none_of(kKinds.begin(), kKinds.end(), is_of)) continue;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

// Runs in a thread of its own. Returns an errno, 0 when EAL runs.
int initialise_eal() {
  static const cookie_io_functions_t kToLog = {nullptr, on_dpdk_log, nullptr, nullptr};
  if (FILE* stream = fopencookie(nullptr, "w", kToLog); stream != nullptr) {
    setvbuf(stream, nullptr, _IOLBF, sizeof(last_error));
    rte_openlog_stream(stream);
  }
  std::vector<std::string> words = {program_invocation_name,
                                    "--no-huge",
                                    "-m",
                                    "256",
                                    "--no-shconf",
                                    "--no-pci",
                                    "--no-telemetry",
                                    "--single-file-segments",
                                    "--log-level=*:error",
                                    fmt::format("--file-prefix={}{}", kPrefix, getpid()),
                                    "--lcores=" + floating_lcore()};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const auto descriptors = open_descriptors();
  rlimit files{};  // EAL raises it, which programs that use select would inherit
  const bool known = getrlimit(RLIMIT_NOFILE, &files) == 0;
  const int used = rte_eal_init(static_cast<int>(arguments.size()), arguments.data());
  const int error = rte_errno;
  if (known) setrlimit(RLIMIT_NOFILE, &files);
  if (used < 0) return error == 0 ? EIO : error;
  sweep_runtime_folders();
  rename_eal_threads();
  close_on_exec(descriptors);
  return 0;
}

}  // namespace

Status start_eal() {
  static constinit std::mutex mutex;
  static pid_t started_by = 0;
  const std::lock_guard lock(mutex);
  if (started_by == getpid()) return Done{};
  if (started_by != 0) {
    return Refusal{
        EIO,
        "DPDK runs in the parent of this process and cannot start again after fork: open "
        "the device in one process only, or use the fabric"};
  }
  int error = 0;
  start_quiet_thread("uroce-eal", [&error] { error = initialise_eal(); }).join();
  if (error != 0) {
    return Refusal{
        EIO, fmt::format("DPDK did not start: {} ({})", rte_strerror(error), last_dpdk_error())};
  }
  started_by = getpid();
  return Done{};
}

std::string last_dpdk_error() {
  const std::lock_guard lock(last_error_mutex);
  return last_error;
}

}  // namespace uroce::datapath
