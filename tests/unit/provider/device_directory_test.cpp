// The folder that stands in for /sys/class/infiniband/<device>.
#include "provider/device_directory.hpp"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/catch.hpp"

namespace uroce::provider {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string name = fs::temp_directory_path() / "uroce-test.XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path path;
};

datapath::DeviceDescription description() {
  datapath::DeviceDescription device;
  device.name = "uroce0";
  device.node_guid = 0x0211'22ff'fe33'4455;
  device.system_guid = 0x0211'22ff'fe33'0000;
  device.gids.resize(datapath::kGidTableLength);
  device.gids[0] = {
      Gid{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55}}, "lo"};
  device.gids[1] = {Gid::from_ipv4(127, 1, 2, 3), "lo"};
  return device;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string publish(const Folder& folder, const datapath::DeviceDescription& device) {
  const auto path = publish_device_directory(folder.path / "fabric/devices", device);
  REQUIRE(path.ok());
  return path.value();
}

size_t entries_beside(const fs::path& link) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(link.parent_path())) ++count;
  return count;
}

TEST_CASE("the directory answers what libibverbs asks a kernel device") {
  const Folder folder;
  const fs::path path = publish(folder, description());
  CHECK(path.filename() == "uroce0");
  CHECK(text_of(path / "node_guid") == "0211:22ff:fe33:4455\n");
  CHECK(text_of(path / "sys_image_guid") == "0211:22ff:fe33:0000\n");
  CHECK(text_of(path / "node_type") == "1: CA\n");
  CHECK(text_of(path / "ports/1/state") == "4: ACTIVE\n");
  CHECK(text_of(path / "ports/1/link_layer") == "Ethernet\n");
  CHECK(text_of(path / "ports/1/pkeys/0") == "0xffff\n");
  CHECK(text_of(path / "ports/1/gids/0") == "fe80:0000:0000:0000:0211:22ff:fe33:4455\n");
  CHECK(text_of(path / "ports/1/gids/1") == "0000:0000:0000:0000:0000:ffff:7f01:0203\n");
  CHECK(text_of(path / "ports/1/gid_attrs/ndevs/1") == "lo\n");
}

TEST_CASE("every GID index has its files, an empty one no interface") {
  const Folder folder;
  const fs::path port = fs::path(publish(folder, description())) / "ports/1";
  for (size_t i = 0; i < datapath::kGidTableLength; ++i) {
    CHECK(text_of(port / "gid_attrs/types" / std::to_string(i)) == "RoCE v2\n");
    CHECK(fs::exists(port / "gids" / std::to_string(i)));
  }
  CHECK(text_of(port / "gids/2") == "0000:0000:0000:0000:0000:0000:0000:0000\n");
  CHECK(!fs::exists(port / "gid_attrs/ndevs/2"));
  CHECK(!fs::exists(port / "gids" / std::to_string(datapath::kGidTableLength)));
}

TEST_CASE("publishing the same again changes nothing on the disk") {
  const Folder folder;
  const fs::path path = publish(folder, description());
  const auto before = fs::last_write_time(path / "node_guid");
  const auto content = fs::read_symlink(path);
  CHECK(publish(folder, description()) == path);
  CHECK(fs::read_symlink(path) == content);
  CHECK(fs::last_write_time(path / "node_guid") == before);
}

TEST_CASE("a changed description replaces the content and leaves nothing behind") {
  const Folder folder;
  auto device = description();
  const fs::path path = publish(folder, device);
  device.link_up = false;
  device.gids[2] = {Gid::from_ipv4(127, 9, 9, 9), ""};
  CHECK(publish(folder, device) == path);
  CHECK(text_of(path / "ports/1/state") == "1: DOWN\n");
  CHECK(text_of(path / "ports/1/gids/2") == "0000:0000:0000:0000:0000:ffff:7f09:0909\n");
  CHECK(entries_beside(path) == 2);  // the link and the content
}

TEST_CASE("a damaged directory is repaired") {
  const Folder folder;
  const fs::path path = publish(folder, description());
  fs::remove_all(path.parent_path() / fs::read_symlink(path));
  CHECK(publish(folder, description()) == path);
  CHECK(text_of(path / "node_type") == "1: CA\n");
}

TEST_CASE("processes that publish different contents at once leave one of them, whole") {
  const Folder folder;
  auto up = description(), down = description();
  down.link_up = false;
  for (const auto* device : {&up, &down, &up, &down}) {
    if (fork() == 0) {
      bool fine = true;
      for (int i = 0; i < 50; ++i) {
        fine = publish_device_directory(folder.path, *device).ok() && fine;
      }
      _exit(fine ? 0 : 1);
    }
  }
  for (int i = 0; i < 4; ++i) {
    int status = -1;
    wait(&status);
    CHECK(status == 0);
  }
  const auto path = publish_device_directory(folder.path, up);
  REQUIRE(path.ok());
  CHECK(text_of(path.value() + "/ports/1/state") == "4: ACTIVE\n");
  CHECK(text_of(path.value() + "/ports/1/gids/15").size() == 40);
}

TEST_CASE("a folder of somebody else is refused") {
  if (geteuid() != 0) return;  // only root can make one
  const Folder folder;
  const auto foreign = folder.path / "0211";
  fs::create_directory(foreign);
  REQUIRE(chown(foreign.c_str(), 12345, 12345) == 0);
  fs::create_directory(foreign / "021122fffe334455");
  REQUIRE(chown((foreign / "021122fffe334455").c_str(), 12345, 12345) == 0);
  const auto refused = publish_device_directory(foreign, description());
  REQUIRE(!refused.ok());
  CHECK(refused.refusal().error == EPERM);
}

TEST_CASE("a path that libibverbs cannot hold is refused, naming the variable to change") {
  const Folder folder;
  const auto refused = publish_device_directory(folder.path / std::string(240, 'x'), description());
  REQUIRE(!refused.ok());
  CHECK(refused.refusal().error == ENAMETOOLONG);
  CHECK(refused.refusal().why.find("UROCE_RUN_DIR") != std::string::npos);
}

TEST_CASE("folders that it makes are for the user alone") {
  const Folder folder;
  const fs::path path = publish(folder, description());
  CHECK(fs::status(path.parent_path()).permissions() == fs::perms::owner_all);
  CHECK(fs::status(path.parent_path().parent_path()).permissions() == fs::perms::owner_all);
}

}  // namespace
}  // namespace uroce::provider
