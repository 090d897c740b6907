// The PCLMULQDQ engine: four lanes of 128 bits folded side by side.
#include <immintrin.h>

#include "icrc/engine.hpp"
#include "icrc/folding.hpp"

// Only what this file defines: its functions run on CPUs that have these, and inline functions of
// headers stay fit for any CPU. AVX is for its three-operand encoding, twice as fast.
#pragma GCC target("pclmul,sse4.1,avx")

namespace uroce::icrc {
namespace {

constexpr size_t kLane = kLaneSize;
constexpr size_t kWide = 8;  // lanes folded side by side

constexpr LastStepTable kLastStep;
constexpr LaneConstants kFold1 = fold_constants(1 * kLaneSize);
constexpr LaneConstants kFold2 = fold_constants(2 * kLaneSize);
constexpr LaneConstants kFold4 = fold_constants(4 * kLaneSize);
constexpr LaneConstants kFoldWide = fold_constants(kWide * kLaneSize);
constexpr LaneConstants kBarrett{barrett_quotient(), barrett_polynomial()};

// Loaded at offset r, a mask that keeps the last r bytes of a lane.
alignas(32) constexpr uint8_t kKeepLast[2 * kLane] = {
    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

inline __m128i load_lane(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

inline __m128i fold(__m128i lane, const LaneConstants& constants) {
  const __m128i by = load_lane(&constants);
  return _mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00), _mm_clmulepi64_si128(lane, by, 0x11));
}

inline __m128i fold_onto(__m128i lane, const LaneConstants& constants, __m128i onto) {
  return _mm_xor_si128(fold(lane, constants), onto);
}

// The remainder of a 96-bit polynomial, by Barrett's reduction.
inline uint32_t remainder_of(__m128i last) {
  const __m128i by = load_lane(&kBarrett);
  const __m128i quotient = _mm_clmulepi64_si128(last, by, 0x00);
  const __m128i multiple = _mm_clmulepi64_si128(quotient, by, 0x10);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(last, multiple), 2));
}

// Where bytes come from: plain memory, or memory that is copied on the way. Each byte is loaded
// once, because another thread may be writing the source.
struct Reader {
  const std::byte* source;

  __m128i lane(size_t at) const { return load_lane(source + at); }
  template <typename Word>
  Word word(size_t at) const {
    Word word;
    __builtin_memcpy(&word, source + at, sizeof(word));
    return word;
  }
};

// Of at least 16 bytes, some bits of which count as ones.
struct MaskedReader {
  const std::byte* source;
  const uint8_t* ones;

  __m128i lane(size_t at) const {
    return _mm_or_si128(load_lane(source + at), load_lane(ones + at));
  }
};

struct Copier {
  const std::byte* source;
  std::byte* destination;

  __m128i lane(size_t at) const {
    __m128i lane = load_lane(source + at);
    asm("" : "+x"(lane));  // a value from now on, not a place to load from again
    _mm_storeu_si128(reinterpret_cast<__m128i*>(destination + at), lane);
    return lane;
  }
  template <typename Word>
  Word word(size_t at) const {
    Word word;
    __builtin_memcpy(&word, source + at, sizeof(word));
    asm("" : "+r"(word));
    __builtin_memcpy(destination + at, &word, sizeof(word));
    return word;
  }
};

// Fewer than 16 bytes, zeros behind them. Two words that overlap may differ if the source changes;
// the later word is copied first, so that what stays is what is returned.
template <typename Bytes>
inline __m128i short_lane(Bytes bytes, size_t size) {
  if (size >= 8) {
    const auto later = bytes.template word<uint64_t>(size - 8);
    const auto first = bytes.template word<uint64_t>(0);
    const uint64_t second = later >> 1 >> (8 * (16 - size) - 1);
    return _mm_set_epi64x(static_cast<long long>(second), static_cast<long long>(first));
  }
  uint64_t value = 0;
  if (size >= 4) {
    const uint64_t later = bytes.template word<uint32_t>(size - 4);
    const uint64_t first = bytes.template word<uint32_t>(0);
    value = first | later >> (8 * (8 - size)) << 32;
  } else if (size >= 2) {
    const uint64_t last = size == 3 ? bytes.template word<uint8_t>(2) : 0;
    value = bytes.template word<uint16_t>(0) | last << 16;
  } else if (size == 1) {
    value = bytes.template word<uint8_t>(0);
  }
  return _mm_set_epi64x(0, static_cast<long long>(value));
}

// Folds whole lanes from the start of `bytes` into the first lane; the rest, fewer than 16 bytes,
// is left. `size` is at least 16.
template <typename Bytes>
inline __m128i fold_lanes(uint32_t state, Bytes bytes, size_t size) {
  __m128i lane = _mm_xor_si128(bytes.lane(0), _mm_cvtsi32_si128(static_cast<int>(state)));
  size_t at = kLane;
  if (size >= kWide * kLane) {
    __m128i lanes[kWide] = {lane};
#pragma GCC unroll 8
    for (size_t i = 1; i < kWide; ++i) {
      lanes[i] = bytes.lane(i * kLane);
    }
    for (at = kWide * kLane; size - at >= kWide * kLane; at += kWide * kLane) {
#pragma GCC unroll 8
      for (size_t i = 0; i < kWide; ++i) {
        lanes[i] = fold_onto(lanes[i], kFoldWide, bytes.lane(at + i * kLane));
      }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < 4; ++i) {
      lanes[i] = fold_onto(lanes[i], kFold4, lanes[i + 4]);
    }
    lanes[0] = fold_onto(lanes[0], kFold2, lanes[2]);
    lanes[1] = fold_onto(lanes[1], kFold2, lanes[3]);
    lane = fold_onto(lanes[0], kFold1, lanes[1]);
  }
  for (; size - at >= kLane; at += kLane) {
    lane = fold_onto(lane, kFold1, bytes.lane(at));
  }
  return lane;
}

template <typename Bytes>
inline uint32_t update_short(uint32_t state, Bytes bytes, size_t size) {
  const __m128i lane =
      _mm_xor_si128(short_lane(bytes, size), _mm_cvtsi32_si128(static_cast<int>(state)));
  return remainder_of(fold(lane, *kLastStep.at(static_cast<int>(size) - kLaneSize)));
}

template <typename Bytes>
inline uint32_t update_long(uint32_t state, Bytes bytes, size_t size) {
  // The last 16 bytes overlap whole lanes, which are copied after them and so are what stays.
  const size_t rest = size % kLane;
  const __m128i tail = _mm_and_si128(bytes.lane(size - kLane), load_lane(kKeepLast + rest));
  const __m128i lane = fold_lanes(state, bytes, size);
  return remainder_of(_mm_xor_si128(fold(lane, *kLastStep.at(static_cast<int>(rest))),
                                    fold(tail, *kLastStep.at(0))));
}

uint32_t update(uint32_t state, const std::byte* data, size_t size) {
  const Reader reader{data};
  return size < kLane ? update_short(state, reader, size) : update_long(state, reader, size);
}

uint32_t update_copy(uint32_t state, std::byte* destination, const std::byte* source, size_t size) {
  const Copier copier{source, destination};
  return size < kLane ? update_short(state, copier, size) : update_long(state, copier, size);
}

uint32_t update_masked(uint32_t state, const std::byte* data, const uint8_t* ones, size_t size) {
  return update_long(state, MaskedReader{data, ones}, size);
}

}  // namespace

const EngineFunctions kPclmulqdqFunctions{update, update_copy, update_masked};

}  // namespace uroce::icrc
