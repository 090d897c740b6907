// The VPCLMULQDQ engine: blocks of 512 bits folded side by side, masked loads for what is left.
#include <immintrin.h>

#include "icrc/engine.hpp"
#include "icrc/folding.hpp"

// Only what this file defines: its functions run on CPUs that have these, and inline functions of
// headers stay fit for any CPU.
#pragma GCC target("vpclmulqdq,pclmul,avx512f,avx512bw,avx512vl,bmi2")

namespace uroce::icrc {
namespace {

constexpr size_t kBlock = 64;
constexpr int kBlockSize = kBlock;
constexpr size_t kWide = 8;  // blocks folded side by side
constexpr size_t kHalf = kWide / 2;

constexpr LastStepTable kLastStep;
constexpr LaneConstants kFold1 = fold_constants(1 * kBlockSize);
constexpr LaneConstants kFold2 = fold_constants(2 * kBlockSize);
constexpr LaneConstants kFoldHalf = fold_constants(kHalf * kBlockSize);
constexpr LaneConstants kFoldWide = fold_constants(kWide * kBlockSize);
constexpr LaneConstants kBarrett{barrett_quotient(), barrett_polynomial()};

inline __m128i load_lane(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

// The masked intrinsics, with nothing masked: g++ 12 sees an uninitialised variable inside the
// plain ones (GCC bug 105593). The instruction is the same.
inline __m512i every_lane(const LaneConstants& constants) {
  return _mm512_maskz_broadcast_i32x4(0xffff, load_lane(&constants));
}

inline __m512i fold_onto(__m512i block, __m512i by, __m512i onto) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(block, by, 0x00),
                                   _mm512_clmulepi64_epi128(block, by, 0x11), onto, kXorOfThree);
}

// The remainder of a 96-bit polynomial, by Barrett's reduction.
inline uint32_t remainder_of(__m128i last) {
  const __m128i by = load_lane(&kBarrett);
  const __m128i quotient = _mm_clmulepi64_si128(last, by, 0x00);
  const __m128i multiple = _mm_clmulepi64_si128(quotient, by, 0x10);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(last, multiple), 2));
}

// The same of the sum of four.
inline uint32_t remainder_of(__m512i last) {
  const __m256i two = _mm256_xor_si256(_mm512_maskz_extracti64x4_epi64(0xff, last, 0),
                                       _mm512_maskz_extracti64x4_epi64(0xff, last, 1));
  return remainder_of(_mm_xor_si128(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1)));
}

// The last step of a block with `distance` bytes behind its first lane, added to `sum`.
inline __m512i last_step(__m512i block, int distance, __m512i sum) {
  return fold_onto(block, _mm512_loadu_si512(kLastStep.at(distance)), sum);
}

// Where bytes come from: plain memory, or memory that is copied on the way. Each byte is loaded
// once, because another thread may be writing the source.
struct Reader {
  const std::byte* source;

  __m512i block(size_t at) const { return _mm512_loadu_si512(source + at); }
  __m512i short_block(size_t at, size_t size) const {
    return _mm512_maskz_loadu_epi8(_bzhi_u64(~0ULL, static_cast<unsigned>(size)), source + at);
  }
  __m128i short_lane(size_t size) const {
    return _mm_maskz_loadu_epi8(static_cast<__mmask16>(_bzhi_u32(~0U, static_cast<unsigned>(size))),
                                source);
  }
};

struct Copier {
  const std::byte* source;
  std::byte* destination;

  __m512i block(size_t at) const {
    __m512i block = _mm512_loadu_si512(source + at);
    asm("" : "+v"(block));  // a value from now on, not a place to load from again
    _mm512_storeu_si512(destination + at, block);
    return block;
  }
  __m512i short_block(size_t at, size_t size) const {
    const __mmask64 mask = _bzhi_u64(~0ULL, static_cast<unsigned>(size));
    __m512i block = _mm512_maskz_loadu_epi8(mask, source + at);
    asm("" : "+v"(block));
    _mm512_mask_storeu_epi8(destination + at, mask, block);
    return block;
  }
  __m128i short_lane(size_t size) const {
    const auto mask = static_cast<__mmask16>(_bzhi_u32(~0U, static_cast<unsigned>(size)));
    __m128i lane = _mm_maskz_loadu_epi8(mask, source);
    asm("" : "+v"(lane));
    _mm_mask_storeu_epi8(destination, mask, lane);
    return lane;
  }
};

// Folds the first `size` bytes into one block, the last of them. `size` is a multiple of kHalf
// blocks and not 0.
template <typename Bytes>
inline __m512i fold_groups(__m512i first, Bytes bytes, size_t size) {
  __m512i half[kHalf] = {first};
  size_t at = kHalf * kBlock;
  if (size >= kWide * kBlock) {
    __m512i wide[kWide] = {first};
#pragma GCC unroll 8
    for (size_t i = 1; i < kWide; ++i) {
      wide[i] = bytes.block(i * kBlock);
    }
    const __m512i by = every_lane(kFoldWide);
    for (at = kWide * kBlock; size - at >= kWide * kBlock; at += kWide * kBlock) {
#pragma GCC unroll 8
      for (size_t i = 0; i < kWide; ++i) {
        wide[i] = fold_onto(wide[i], by, bytes.block(at + i * kBlock));
      }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < kHalf; ++i) {
      half[i] = fold_onto(wide[i], every_lane(kFoldHalf), wide[i + kHalf]);
    }
  } else {
#pragma GCC unroll 8
    for (size_t i = 1; i < kHalf; ++i) {
      half[i] = bytes.block(i * kBlock);
    }
  }
  if (at < size) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kHalf; ++i) {
      half[i] = fold_onto(half[i], every_lane(kFoldHalf), bytes.block(at + i * kBlock));
    }
  }
  const __m512i by_two = every_lane(kFold2);
  return fold_onto(fold_onto(half[0], by_two, half[2]), every_lane(kFold1),
                   fold_onto(half[1], by_two, half[3]));
}

// The register after one block whose first `size` bytes are the message and the rest zeros.
inline uint32_t update_one_block(__m128i start, __m512i block, size_t size) {
  return remainder_of(last_step(_mm512_xor_si512(block, _mm512_zextsi128_si512(start)),
                                static_cast<int>(size) - kLaneSize, _mm512_setzero_si512()));
}

template <typename Bytes>
inline uint32_t update_through(uint32_t state, Bytes bytes, size_t size) {
  const __m128i start = _mm_cvtsi32_si128(static_cast<int>(state));
  if (size <= static_cast<size_t>(kLaneSize)) {
    const __m128i lane = _mm_xor_si128(bytes.short_lane(size), start);
    const __m128i by = load_lane(kLastStep.at(static_cast<int>(size) - kLaneSize));
    return remainder_of(
        _mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00), _mm_clmulepi64_si128(lane, by, 0x11)));
  }
  if (size < kBlock) {
    return update_one_block(start, bytes.short_block(0, size), size);
  }
  __m512i block = _mm512_xor_si512(bytes.block(0), _mm512_zextsi128_si512(start));
  size_t at = kBlock;
  if (size >= kHalf * kBlock) {
    at = size - size % (kHalf * kBlock);
    block = fold_groups(block, bytes, at);
  }
  for (; size - at >= kBlock; at += kBlock) {
    block = fold_onto(block, every_lane(kFold1), bytes.block(at));
  }
  const int rest = static_cast<int>(size - at);
  __m512i last = last_step(block, kBlockSize - kLaneSize + rest, _mm512_setzero_si512());
  if (rest > 0) {
    last = last_step(bytes.short_block(at, size - at), rest - kLaneSize, last);
  }
  return remainder_of(last);
}

uint32_t update(uint32_t state, const std::byte* data, size_t size) {
  return update_through(state, Reader{data}, size);
}

uint32_t update_copy(uint32_t state, std::byte* destination, const std::byte* source, size_t size) {
  return update_through(state, Copier{source, destination}, size);
}

uint32_t update_masked(uint32_t state, const std::byte* data, const uint8_t* ones, size_t size) {
  const __mmask64 mask = _bzhi_u64(~0ULL, static_cast<unsigned>(size));
  const __m512i block =
      _mm512_or_si512(_mm512_maskz_loadu_epi8(mask, data), _mm512_maskz_loadu_epi8(mask, ones));
  return update_one_block(_mm_cvtsi32_si128(static_cast<int>(state)), block, size);
}

}  // namespace

const EngineFunctions kVpclmulqdqFunctions{update, update_copy, update_masked};

}  // namespace uroce::icrc
