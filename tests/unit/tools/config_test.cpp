// What the configuration accepts, and what its refusals say.
#include "datapath/config.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>

#include "tests/catch.hpp"

using namespace uroce;
using namespace uroce::datapath;

namespace {

using Settings = std::map<std::string, std::string, std::less<>>;

Result<Config> config_of(const Settings& settings) {
  return config_from([&settings](std::string_view variable) -> std::optional<Setting> {
    const auto found = settings.find(variable);
    if (found == settings.end()) return std::nullopt;
    return Setting{found->first, found->second};
  });
}

// The refusal must name the key and the value.
void check_refused(const std::string& variable, const std::string& value) {
  INFO(variable << "=" << value);
  const Result<Config> config = config_of({{variable, value}});
  REQUIRE_FALSE(config.ok());
  CHECK(config.refusal().error == EINVAL);
  CHECK(config.refusal().why.starts_with(fmt::format("{}='{}' is not allowed: ", variable, value)));
}

}  // namespace

TEST_CASE("the default is two devices on the default fabric") {
  const Result<Config> config = config_of({});
  REQUIRE(config.ok());
  CHECK(config->wire == WireKind::kFabric);
  CHECK(config->fabric == "default");
  CHECK(config->devices == std::vector<std::string>{"uroce0", "uroce1"});
  CHECK(config->mtu == Mtu::k4096);
  CHECK(config->progress == ProgressMode::kAuto);
  CHECK(config->log_level == LogLevel::kWarning);
  CHECK(config->log_file.empty());
}

TEST_CASE("each setting reaches its member") {
  const Result<Config> config = config_of({{"UROCE_FABRIC", "lab_2-b"},
                                           {"UROCE_RUN_DIR", "/tmp/x//"},
                                           {"UROCE_DEVICES", "a,b1,c-d_e"},
                                           {"UROCE_MTU", "1024"},
                                           {"UROCE_PROGRESS", "dedicated"},
                                           {"UROCE_LOG_LEVEL", "debug"},
                                           {"UROCE_LOG", "/tmp/some.log"}});
  REQUIRE(config.ok());
  CHECK(config->fabric == "lab_2-b");
  CHECK(config->run_directory == "/tmp/x");
  CHECK(config->fabric_directory() == "/tmp/x/lab_2-b");
  CHECK(config->devices == std::vector<std::string>{"a", "b1", "c-d_e"});
  CHECK(config->mtu == Mtu::k1024);
  CHECK(config->progress == ProgressMode::kDedicated);
  CHECK(config->dedicated_cpu == -1);
  CHECK(config->log_level == LogLevel::kDebug);
  CHECK(config->log_file == "/tmp/some.log");
}

TEST_CASE("wrong values are refused by name") {
  check_refused("UROCE_FABRIC", "a/b");
  check_refused("UROCE_FABRIC", "..");
  check_refused("UROCE_FABRIC", std::string(33, 'x'));
  check_refused("UROCE_RUN_DIR", "relative/path");
  check_refused("UROCE_DEVICES", "");
  check_refused("UROCE_DEVICES", "a,,b");
  check_refused("UROCE_DEVICES", "a,");
  check_refused("UROCE_DEVICES", "a,a");
  check_refused("UROCE_DEVICES", "0a");
  check_refused("UROCE_DEVICES", "a b");
  check_refused("UROCE_DEVICES", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q");
  check_refused("UROCE_NETDEV", "a/b");
  check_refused("UROCE_NETDEV", "sixteen-letters!");
  check_refused("UROCE_MTU", "1500");
  check_refused("UROCE_MTU", " 1024");
  check_refused("UROCE_MTU", "1024x");
  check_refused("UROCE_PROGRESS", "Auto");
  check_refused("UROCE_PROGRESS", "dedicated:");
  check_refused("UROCE_PROGRESS", "dedicated:-1");
  check_refused("UROCE_PROGRESS", "dedicated:0x0");
  check_refused("UROCE_PROGRESS", "dedicated:99999");
  check_refused("UROCE_LOG_LEVEL", "trace");
  check_refused("UROCE_LOG", "/tmp");
  check_refused("UROCE_LOG", "/tmp/none/");
}

TEST_CASE("the limits of names are accepted") {
  CHECK(config_of({{"UROCE_FABRIC", std::string(32, 'x')}}).ok());
  CHECK(config_of({{"UROCE_DEVICES", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p"}}).ok());
  CHECK(config_of({{"UROCE_NETDEV", "fifteen-letters"}}).ok());
}

TEST_CASE("a dedicated thread may be pinned to an allowed CPU") {
  const int cpu = sched_getcpu();
  REQUIRE(cpu >= 0);
  const Result<Config> config = config_of({{"UROCE_PROGRESS", fmt::format("dedicated:{}", cpu)}});
  REQUIRE(config.ok());
  CHECK(config->progress == ProgressMode::kDedicated);
  CHECK(config->dedicated_cpu == cpu);
}

TEST_CASE("an interface carries one device") {
  const Result<Config> config = config_of({{"UROCE_NETDEV", "eth0"}});
  REQUIRE(config.ok());
  CHECK(config->wire == WireKind::kNetdev);
  CHECK(config->netdev == "eth0");
  CHECK(config->devices == std::vector<std::string>{"uroce0"});
  const Result<Config> named = config_of({{"UROCE_NETDEV", "eth0"}, {"UROCE_DEVICES", "rdma7"}});
  REQUIRE(named.ok());
  CHECK(named->devices == std::vector<std::string>{"rdma7"});
  const Result<Config> two = config_of({{"UROCE_NETDEV", "eth0"}, {"UROCE_DEVICES", "a,b"}});
  REQUIRE_FALSE(two.ok());
  CHECK(two.refusal().why ==
        "UROCE_DEVICES='a,b' is not allowed: interface eth0 carries one device");
}

TEST_CASE("the run directory is the user's own runtime directory, else one in /tmp") {
  const std::string fallback = fmt::format("/tmp/uroce-{}", geteuid());
  char mine[] = "/tmp/uroce-config-test-XXXXXX";
  REQUIRE(mkdtemp(mine) != nullptr);
  setenv("XDG_RUNTIME_DIR", mine, 1);
  CHECK(config_of({})->run_directory == fmt::format("{}/uroce", mine));
  rmdir(mine);
  CHECK(config_of({})->run_directory == fallback);
  unsetenv("XDG_RUNTIME_DIR");
  CHECK(config_of({})->run_directory == fallback);
}

TEST_CASE("an empty environment variable counts as unset") {
  setenv("UROCE_MTU", "", 1);
  CHECK(config_from_environment().ok());
  setenv("UROCE_MTU", "77", 1);
  const Result<Config> config = config_from_environment();
  REQUIRE_FALSE(config.ok());
  CHECK(config.refusal().why == "UROCE_MTU='77' is not allowed: give 256, 512, 1024, 2048 or 4096");
  unsetenv("UROCE_MTU");
}
