// Speed of the ICRC engines, alone and with a copy, beside ISA-L, zlib and memcpy in the same run.
#include <fmt/core.h>
#include <isa-l/crc.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "icrc/crc32.hpp"
#include "icrc/icrc.hpp"

namespace {

using namespace uroce;
using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {64, 256, 1024, 4096, 65536};
constexpr size_t kLargest = 65536;
constexpr int kRounds = 41;                       // interleaved; the median counts
constexpr std::chrono::microseconds kBatch{200};  // short: most batches escape other programs
constexpr size_t kFrameHeaders = 70;  // Ethernet, IPv4, UDP, BTH, RETH: where payload begins

struct Buffers {
  std::byte* source;
  std::byte* destination;
};

// One call covers `size` bytes and returns something that depends on all of them.
struct Contender {
  std::string name;
  uint32_t (*call)(const Buffers&, size_t size);
  std::optional<icrc::Engine> engine;  // to be in use meanwhile
  std::vector<double> median_gbytes;   // by size
};

uint32_t isal_crc(const std::byte* data, size_t size) {
  return crc32_gzip_refl(0, reinterpret_cast<const unsigned char*>(data), size);
}

uint32_t zlib_crc(const std::byte* data, size_t size) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const unsigned char*>(data), static_cast<unsigned>(size)));
}

std::vector<icrc::Engine> engines() {
  std::vector<icrc::Engine> found;
  for (const auto engine :
       {icrc::Engine::kPortable, icrc::Engine::kPclmulqdq, icrc::Engine::kVpclmulqdq}) {
    if (icrc::supported(engine)) {
      found.push_back(engine);
    }
  }
  return found;
}

std::vector<Contender> crc_contenders() {
  std::vector<Contender> contenders;
  for (const auto engine : engines()) {
    contenders.push_back({std::string(icrc::name_of(engine)),
                          [](const Buffers& b, size_t size) {
                            return icrc::update(~0u, {b.source, size});
                          },
                          engine,
                          {}});
  }
  const auto add = [&](const char* name, auto call) {
    contenders.push_back({name, call, std::nullopt, {}});
  };
  add("zlib", [](const Buffers& b, size_t size) { return zlib_crc(b.source, size); });
  add("ISA-L", [](const Buffers& b, size_t size) { return isal_crc(b.source, size); });
  return contenders;
}

std::vector<Contender> copy_contenders() {
  std::vector<Contender> contenders;
  for (const auto engine : engines()) {
    contenders.push_back({std::string(icrc::name_of(engine)),
                          [](const Buffers& b, size_t size) {
                            return icrc::update_copy(~0u, b.destination, b.source, size);
                          },
                          engine,
                          {}});
  }
  const auto add = [&](const char* name, auto call) {
    contenders.push_back({name, call, std::nullopt, {}});
  };
  add("memcpy alone", [](const Buffers& b, size_t size) {
    std::memcpy(b.destination, b.source, size);
    return static_cast<uint32_t>(b.destination[size - 1]);
  });
  add("memcpy, then ISA-L", [](const Buffers& b, size_t size) {
    std::memcpy(b.destination, b.source, size);
    return isal_crc(b.destination, size);
  });
  return contenders;
}

// Independent calls, as packets are: the result of one does not feed the next.
double gbytes_per_second(const Contender& contender, const Buffers& buffers, size_t size) {
  constexpr size_t kBytesBetweenClockReads = 1 << 16;
  const size_t calls = kBytesBetweenClockReads / size;
  if (contender.engine) {
    icrc::select(*contender.engine);
  }
  const auto begin = Clock::now();
  auto now = begin;
  size_t bytes = 0;
  for (; now - begin < kBatch; now = Clock::now()) {
    for (size_t i = 0; i < calls; ++i) {
      uint32_t result = contender.call(buffers, size);
      asm volatile("" : "+r"(result) : : "memory");
    }
    bytes += calls * size;
  }
  return static_cast<double>(bytes) / std::chrono::duration<double, std::nano>(now - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void measure(std::vector<Contender>& contenders, const Buffers& buffers) {
  for (const size_t size : kSizes) {
    std::vector<std::vector<double>> rounds(contenders.size());
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < contenders.size(); ++i) {
        rounds[i].push_back(gbytes_per_second(contenders[i], buffers, size));
      }
    }
    for (size_t i = 0; i < contenders.size(); ++i) {
      contenders[i].median_gbytes.push_back(median(rounds[i]));
    }
  }
}

// GB/s, and in brackets the ratio to the last contender.
void print(std::string_view title, const std::vector<Contender>& contenders) {
  fmt::print("\n{:<40}", title);
  for (const size_t size : kSizes) {
    fmt::print("{:>16}", size);
  }
  fmt::print("\n");
  for (const Contender& contender : contenders) {
    fmt::print("  {:<38}", contender.name);
    for (size_t i = 0; i < contender.median_gbytes.size(); ++i) {
      const double gbytes = contender.median_gbytes[i];
      fmt::print("{:>8.1f} ({:5.2f})", gbytes, gbytes / contenders.back().median_gbytes[i]);
    }
    fmt::print("\n");
  }
}

// Nanoseconds for the masked headers of one packet.
double begin_ns(icrc::Engine engine, size_t headers) {
  constexpr int kCalls = 1 << 18;
  icrc::select(engine);
  std::vector<std::byte> bytes(headers, std::byte(headers == 40 ? 0x45 : 0x60));
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    uint32_t sink = 0;
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) {
      sink ^= icrc::begin(std::span<const std::byte>(bytes));
      asm volatile("" : "+r"(sink) : : "memory");
    }
    const std::chrono::duration<double, std::nano> taken = Clock::now() - begin;
    rounds.push_back(taken.count() / kCalls);
  }
  return median(rounds);
}

}  // namespace

int main() {
  std::vector<std::byte> storage(2 * kLargest + 4096);
  for (size_t i = 0; i < storage.size(); ++i) {
    storage[i] = static_cast<std::byte>(i * 131 >> 3);
  }
  auto* const base = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64);
  // Half a page apart, so that no load seems to depend on a store 4 KiB away.
  auto* const destination = base + kLargest + 2048;

  fmt::print("GB/s, medians of {} interleaved runs; in brackets the ratio to the last row\n",
             kRounds);
  auto crc = crc_contenders();
  measure(crc, {base, destination});
  print("ICRC, by message size in bytes", crc);
  auto aligned = copy_contenders();
  measure(aligned, {base, destination});
  print("copy and ICRC, both aligned", aligned);
  auto framed = copy_contenders();
  measure(framed, {base, destination + kFrameHeaders});
  print("copy and ICRC, into a frame", framed);

  fmt::print("\nmasked headers of one packet, ns\n");
  for (const auto engine : engines()) {
    fmt::print("  {:<38} IPv4 {:.1f}, IPv6 {:.1f}\n", icrc::name_of(engine), begin_ns(engine, 40),
               begin_ns(engine, 60));
  }
  return 0;
}
