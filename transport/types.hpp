// The strong value types that every layer shares: sequence and queue pair numbers, keys, GIDs,
// time.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace uroce {

// A point on the lane's clock, in nanoseconds since an arbitrary origin. Only datapath reads a
// clock.
struct Instant {
  int64_t ns = 0;

  static constexpr Instant never() { return {std::numeric_limits<int64_t>::max()}; }
  constexpr auto operator<=>(const Instant&) const = default;
  constexpr Instant operator+(int64_t duration_ns) const { return {ns + duration_ns}; }
  constexpr int64_t operator-(Instant earlier) const { return ns - earlier.ns; }
};

// A 24-bit packet sequence number (IBTA 9.7.2). There is no `<`: order is the sign of a distance.
class Psn {
 public:
  static constexpr uint32_t kMask = 0xffffff;

  constexpr Psn() = default;
  constexpr explicit Psn(uint32_t value) : value_(value & kMask) {}
  constexpr uint32_t value() const { return value_; }
  constexpr bool operator==(const Psn&) const = default;
  constexpr Psn operator+(uint32_t packets) const { return Psn(value_ + packets); }
  // Signed distance from `other` to this, in [-2^23, 2^23).
  constexpr int32_t operator-(Psn other) const {
    return static_cast<int32_t>((value_ - other.value_) << 8) >> 8;
  }

 private:
  uint32_t value_ = 0;
};

// A 24-bit queue pair number: 8 bits fabric slot, 16 bits index within the HCA.
struct Qpn {
  uint32_t value = 0;

  static constexpr Qpn of(uint8_t slot, uint16_t index) {
    return {static_cast<uint32_t>(slot) << 16 | index};
  }
  constexpr uint8_t slot() const { return static_cast<uint8_t>(value >> 16); }
  constexpr uint16_t index() const { return static_cast<uint16_t>(value); }
  constexpr bool operator==(const Qpn&) const = default;
};

// Keys of a memory region: 24-bit index, 8-bit key. L_Key and R_Key of a region have one value, yet
// are two types: one grants the local consumer, the other the remote peer.
struct Lkey {
  uint32_t value = 0;
  constexpr bool operator==(const Lkey&) const = default;
};
struct Rkey {
  uint32_t value = 0;
  constexpr bool operator==(const Rkey&) const = default;
};

// Identity of a protection domain within one HCA; 0 is no domain.
struct PdId {
  uint32_t value = 0;
  constexpr bool operator==(const PdId&) const = default;
};

// A 16-byte global identifier in network order: an IP address in RoCEv2 (annex A17), IPv4 as
// ::ffff:a.b.c.d.
struct Gid {
  std::array<uint8_t, 16> bytes{};

  static constexpr Gid from_ipv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
  }
  constexpr bool is_ipv4_mapped() const {
    for (size_t i = 0; i < 10; ++i) {
      if (bytes[i] != 0) return false;
    }
    return bytes[10] == 0xff && bytes[11] == 0xff;
  }
  constexpr bool is_zero() const { return *this == Gid{}; }
  constexpr auto operator<=>(const Gid&) const = default;
};

// Path MTU in bytes of payload per packet.
enum class Mtu : uint16_t { k256 = 256, k512 = 512, k1024 = 1024, k2048 = 2048, k4096 = 4096 };
constexpr uint32_t bytes_of(Mtu mtu) {
  return static_cast<uint32_t>(mtu);
}

}  // namespace uroce
