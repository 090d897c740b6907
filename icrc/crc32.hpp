// CRC-32/IEEE (reflected 0x04C11DB7) engines: portable, PCLMULQDQ, VPCLMULQDQ, chosen at run time.
//
// State is the raw register: not inverted at start or end, so that any piece of a message can be
// continued. zlib's crc32(0, data) is ~update(~0u, data).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace uroce::icrc {

enum class Engine : uint8_t { kPortable, kPclmulqdq, kVpclmulqdq };

std::string_view name_of(Engine engine);
std::optional<Engine> engine_named(std::string_view name);  // portable|pclmulqdq|vpclmulqdq
bool supported(Engine engine);                              // by this CPU and operating system
Engine fastest_supported();
// $UROCE_ICRC_ENGINE, if it names a supported engine. Whoever reads the configuration refuses other
// values with a message (by engine_named and supported); here they count as unset.
std::optional<Engine> wanted_by_environment();
Engine current();            // wanted_by_environment, or else the fastest
void select(Engine engine);  // from now on, for all threads; one that is not supported is ignored

// Continues `state` over `data`.
uint32_t update(uint32_t state, std::span<const std::byte> data);
// The same, copying `size` bytes from `source` to `destination` in the same pass. The ranges do not
// overlap. Source may change meanwhile (user memory): the CRC covers what was stored.
uint32_t update_copy(uint32_t state, std::byte* destination, const std::byte* source, size_t size);

// The engines one by one, for tests and benchmarks.
uint32_t update_with(Engine engine, uint32_t state, std::span<const std::byte> data);
uint32_t update_copy_with(Engine engine, uint32_t state, std::byte* destination,
                          const std::byte* source, size_t size);

}  // namespace uroce::icrc
