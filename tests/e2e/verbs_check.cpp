// Runs one case in two processes: perftest checks no data, this program does.
//
// verbs_check [--device D] [--peer-device D] [--gid N] CASE     both processes, on one host
// verbs_check [--device D] [--gid N] --listen PORT CASE         one of the two, the other connects
// verbs_check [--device D] [--gid N] --connect HOST:PORT CASE
// verbs_check --list
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/e2e/verbs_kit.hpp"

namespace uroce::e2e {
namespace {

struct CommandLine {
  Options options;
  std::string peer_device;
  int listen_port = 0;
  std::string connect_host;
  int connect_port = 0;
  std::string case_name;
};

const Case* find_case(std::string_view name) {
  for (const auto& group : {data_cases(), order_cases(), error_cases(), limit_cases(),
                            event_cases(), process_cases()}) {
    for (const Case& candidate : group) {
      if (name == "--list") fmt::print("{}\n", candidate.name);
      if (candidate.name == name) return &candidate;
    }
  }
  return nullptr;
}

CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool has_value = word == "--device" || word == "--peer-device" || word == "--gid" ||
                           word == "--listen" || word == "--connect";
    require(!has_value || i + 1 < argc, "{} needs a value", word);
    const std::string value = has_value ? argv[++i] : "";
    if (word == "--device") {
      line.options.device = value;
    } else if (word == "--peer-device") {
      line.peer_device = value;
    } else if (word == "--gid") {
      line.options.gid_index = atoi(value.c_str());
    } else if (word == "--listen") {
      line.listen_port = atoi(value.c_str());
    } else if (word == "--connect") {
      const size_t colon = value.rfind(':');
      require(colon != std::string::npos, "--connect wants HOST:PORT");
      line.connect_host = value.substr(0, colon);
      line.connect_port = atoi(value.c_str() + colon + 1);
    } else {
      line.case_name = word;
    }
  }
  return line;
}

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  require(inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1, "{} is no address", host);
  return address;
}

int accept_one(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const sockaddr_in address = address_of("0.0.0.0", port);
  require(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
              listen(listener, 1) == 0,
          "listen on {}: {}", port, strerror(errno));
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  require(fd >= 0, "accept: {}", strerror(errno));
  close(listener);
  return fd;
}

int connect_to(const std::string& host, int port) {
  const sockaddr_in address = address_of(host, port);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    close(fd);
    usleep(50'000);
  }
  fail(fmt::format("connect to {}:{}: {}", host, port, strerror(errno)));
}

int run_one(const Case& chosen, const Options& options, int fd) {
  SideChannel channel(fd);
  chosen.run(options, channel);
  channel.barrier();
  return 0;
}

// The device is opened after the fork, by each process for itself.
int run_both(const Case& chosen, const CommandLine& line) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  const pid_t child = fork();
  require(child >= 0, "fork: {}", strerror(errno));
  Options options = line.options;
  if (child == 0) {
    close(ends[0]);
    options.first = false;
    if (!line.peer_device.empty()) options.device = line.peer_device;
    std::exit(run_one(chosen, options, ends[1]));
  }
  close(ends[1]);
  const int status = run_one(chosen, options, ends[0]);
  int child_status = 0;
  waitpid(child, &child_status, 0);
  require(child_status == 0, "the other process ended with wait status {}", child_status);
  return status;
}

int run_main(int argc, char** argv) {
  CommandLine line = parse_command_line(argc, argv);
  const Case* const chosen = find_case(line.case_name);
  if (line.case_name == "--list") return 0;
  require(chosen != nullptr, "there is no case '{}' (see --list)", line.case_name);
  if (line.listen_port != 0) {
    line.options.first = false;
    return run_one(*chosen, line.options, accept_one(line.listen_port));
  }
  if (line.connect_port != 0) {
    return run_one(*chosen, line.options, connect_to(line.connect_host, line.connect_port));
  }
  return run_both(*chosen, line);
}

}  // namespace
}  // namespace uroce::e2e

int main(int argc, char** argv) {
  const int status = uroce::e2e::run_main(argc, argv);
  if (status == 0) fmt::print("ok\n");
  return status;
}
