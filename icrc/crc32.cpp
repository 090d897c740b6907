// The choice of an engine, and the calls that go through it.
#include "icrc/crc32.hpp"

#include <array>
#include <atomic>
#include <cstdlib>

#include "icrc/cpu.hpp"
#include "icrc/engine.hpp"

namespace uroce::icrc {
namespace {

struct EngineRow {
  Engine engine;
  std::string_view name;
  const EngineFunctions* functions;
};

// In the order of the enumeration; faster engines come later.
constexpr std::array kEngines {
  EngineRow{Engine::kPortable, "portable", &kPortableFunctions},
#if defined(__x86_64__)
      EngineRow{Engine::kPclmulqdq, "pclmulqdq", &kPclmulqdqFunctions},
      EngineRow{Engine::kVpclmulqdq, "vpclmulqdq", &kVpclmulqdqFunctions},
#endif
};

const EngineRow* find_row(Engine engine) {
  for (const EngineRow& row : kEngines) {
    if (row.engine == engine) {
      return &row;
    }
  }
  return nullptr;
}

uint32_t choose_and_update(uint32_t state, const std::byte* data, size_t size);
uint32_t choose_and_update_copy(uint32_t state, std::byte* destination, const std::byte* source,
                                size_t size);
uint32_t choose_and_update_masked(uint32_t state, const std::byte* data, const uint8_t* ones,
                                  size_t size);

// Before the first call the functions are these, which choose: no check is paid per call, and a
// call during static initialisation works too.
constexpr EngineFunctions kChoosingFunctions{choose_and_update, choose_and_update_copy,
                                             choose_and_update_masked};
constinit std::atomic<const EngineFunctions*> current_functions{&kChoosingFunctions};

const EngineFunctions* chosen_functions() {
  const EngineFunctions* expected = &kChoosingFunctions;
  const EngineFunctions* wanted =
      find_row(wanted_by_environment().value_or(fastest_supported()))->functions;
  if (current_functions.compare_exchange_strong(expected, wanted, std::memory_order_relaxed)) {
    return wanted;
  }
  return expected;
}

uint32_t choose_and_update(uint32_t state, const std::byte* data, size_t size) {
  return chosen_functions()->update(state, data, size);
}

uint32_t choose_and_update_copy(uint32_t state, std::byte* destination, const std::byte* source,
                                size_t size) {
  return chosen_functions()->update_copy(state, destination, source, size);
}

uint32_t choose_and_update_masked(uint32_t state, const std::byte* data, const uint8_t* ones,
                                  size_t size) {
  return chosen_functions()->update_masked(state, data, ones, size);
}

}  // namespace

std::string_view name_of(Engine engine) {
  const EngineRow* row = find_row(engine);
  return row != nullptr ? row->name : "unknown";
}

std::optional<Engine> engine_named(std::string_view name) {
  for (const EngineRow& row : kEngines) {
    if (row.name == name) {
      return row.engine;
    }
  }
  return std::nullopt;
}

bool supported(Engine engine) {
  if (find_row(engine) == nullptr) {
    return false;
  }
  switch (engine) {
    case Engine::kPortable:
      return true;
    case Engine::kPclmulqdq:
      return cpu_has_pclmulqdq();
    case Engine::kVpclmulqdq:
      return cpu_has_vpclmulqdq();
  }
  return false;
}

Engine fastest_supported() {
  Engine fastest = Engine::kPortable;
  for (const EngineRow& row : kEngines) {
    if (supported(row.engine)) {
      fastest = row.engine;
    }
  }
  return fastest;
}

std::optional<Engine> wanted_by_environment() {
  const char* name = std::getenv("UROCE_ICRC_ENGINE");
  if (name == nullptr) {
    return std::nullopt;
  }
  const std::optional<Engine> engine = engine_named(name);
  return engine && supported(*engine) ? engine : std::nullopt;
}

Engine current() {
  const EngineFunctions* functions = current_functions.load(std::memory_order_relaxed);
  if (functions == &kChoosingFunctions) {
    functions = chosen_functions();
  }
  for (const EngineRow& row : kEngines) {
    if (row.functions == functions) {
      return row.engine;
    }
  }
  return Engine::kPortable;
}

void select(Engine engine) {
  if (supported(engine)) {
    current_functions.store(find_row(engine)->functions, std::memory_order_relaxed);
  }
}

const EngineFunctions& engine_in_use() {
  return *current_functions.load(std::memory_order_relaxed);
}

uint32_t update(uint32_t state, std::span<const std::byte> data) {
  return engine_in_use().update(state, data.data(), data.size());
}

uint32_t update_copy(uint32_t state, std::byte* destination, const std::byte* source, size_t size) {
  return engine_in_use().update_copy(state, destination, source, size);
}

uint32_t update_with(Engine engine, uint32_t state, std::span<const std::byte> data) {
  return kEngines[static_cast<size_t>(engine)].functions->update(state, data.data(), data.size());
}

uint32_t update_copy_with(Engine engine, uint32_t state, std::byte* destination,
                          const std::byte* source, size_t size) {
  return kEngines[static_cast<size_t>(engine)].functions->update_copy(state, destination, source,
                                                                      size);
}

}  // namespace uroce::icrc
