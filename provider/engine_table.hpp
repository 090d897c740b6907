// What the plug-in offers to the preload: the engine exists once in a process, inside the plug-in.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uroce::provider {

inline constexpr uint32_t kEngineTableVersion = 1;
inline constexpr const char* kEngineTableSymbol = "uroce_engine";
inline constexpr int kMaxListedDevices = 256;

// The exported symbol `uroce_engine` is one of these.
struct EngineTable {
  uint32_t version;  // kEngineTableVersion: both libraries come from one build
  // Writes up to kMaxListedDevices devices, each with a reference for ibv_free_device_list to drop,
  // and returns how many; or -1 and errno.
  int (*list_devices)(ibv_device** out);
  bool (*owns_device)(const ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
};

}  // namespace uroce::provider
