// What the fabric's tests share: a fabric in a directory of its own, and addresses on it.
#pragma once

#include <fmt/format.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/fabric/fabric_addresses.hpp"
#include "datapath/fabric/fabric_wire.hpp"
#include "tests/catch.hpp"

namespace uroce::datapath {

// Removed at the end; two runs at once do not meet.
class TemporaryFabric {
 public:
  TemporaryFabric() {
    char name[] = "/tmp/uroce-fabric-test-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    config.run_directory = name;
    config.fabric = "test";
  }
  ~TemporaryFabric() {
    std::error_code ignored;
    std::filesystem::remove_all(config.run_directory, ignored);
  }

  std::vector<DeviceDescription> devices() const { return describe_fabric_devices(config).value(); }
  std::unique_ptr<Wire> open(size_t device) const {
    auto wire = open_fabric_wire(config, devices()[device]);
    if (!wire) FAIL(wire.refusal().why);
    return std::move(*wire);
  }

  transport::AddressVector address(size_t from, size_t to, size_t gid_index = 1) const {
    transport::AddressVector address;
    address.source_gid = devices()[from].gids[gid_index].gid;
    address.destination_gid = devices()[to].gids[gid_index].gid;
    return address;
  }

  Config config;
};

// A frame that carries a text behind 14 bytes of header.
inline bool send_text(Wire& wire, const Path& path, Qpn destination, std::string_view text) {
  std::byte* const out = wire.reserve(path, destination, 14 + text.size());
  if (out == nullptr) return false;
  std::memset(out, 0, 14);
  std::memcpy(out + 14, text.data(), text.size());
  wire.commit(14 + text.size());
  return true;
}

inline std::string text_of(const Frame& frame) {
  return {reinterpret_cast<const char*>(frame.data) + 14, frame.length - 14};
}

// All texts that are there now.
inline std::vector<std::string> receive_texts(Wire& wire) {
  std::vector<std::string> texts;
  std::array<Frame, 32> frames;
  while (const size_t count = wire.receive(frames)) {
    for (size_t i = 0; i < count; ++i) texts.push_back(text_of(frames[i]));
    wire.release();
  }
  return texts;
}

}  // namespace uroce::datapath
