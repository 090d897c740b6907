// No engine touches a byte outside the message: pages without access lie on both sides of it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "icrc/icrc.hpp"
#include "tests/catch.hpp"
#include "tests/unit/icrc/reference.hpp"

namespace uroce::icrc {
namespace {

// One writable page between two that cannot be touched.
class IslandPage {
 public:
  IslandPage() {
    if (base_ == MAP_FAILED) {
      throw std::bad_alloc();
    }
    mprotect(page(), kPage, PROT_READ | PROT_WRITE);
    for (size_t i = 0; i < kPage; ++i) {
      page()[i] = static_cast<std::byte>(i * 29 + 5);
    }
  }
  ~IslandPage() { munmap(base_, 3 * kPage); }
  IslandPage(const IslandPage&) = delete;
  IslandPage& operator=(const IslandPage&) = delete;

  std::byte* first(size_t) { return page(); }
  std::byte* last(size_t size) { return page() + kPage - size; }

 private:
  std::byte* page() { return static_cast<std::byte*>(base_) + kPage; }

  const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* base_ = mmap(nullptr, 3 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

TEST_CASE("messages at either end of a page are read and copied within it") {
  IslandPage source;
  IslandPage destination;
  for (const Engine engine : {Engine::kPortable, Engine::kPclmulqdq, Engine::kVpclmulqdq}) {
    if (!supported(engine)) {
      continue;
    }
    for (size_t size = 0; size <= 600; ++size) {
      for (const auto place : {&IslandPage::first, &IslandPage::last}) {
        const std::byte* const from = (source.*place)(size);
        std::byte* const to = (destination.*place)(size);
        const uint32_t expected = tests::reference_crc(~0u, {from, size});
        INFO(name_of(engine) << ", " << size << " bytes");
        REQUIRE(update_with(engine, ~0u, {from, size}) == expected);
        REQUIRE(update_copy_with(engine, ~0u, to, from, size) == expected);
        REQUIRE(std::memcmp(from, to, size) == 0);
      }
    }
  }
}

TEST_CASE("headers at either end of a page are read within it") {
  IslandPage page;
  for (const Engine engine : {Engine::kPortable, Engine::kPclmulqdq, Engine::kVpclmulqdq}) {
    if (!supported(engine)) {
      continue;
    }
    select(engine);
    for (const size_t size : {40, 60}) {
      const auto version = std::byte(size == 40 ? 0x45 : 0x60);
      *page.first(size) = version;
      const uint32_t at_start = icrc::begin({page.first(size), size});
      std::memcpy(page.last(size), page.first(size), size);
      INFO(name_of(engine) << ", " << size << " bytes");
      CHECK(icrc::begin({page.last(size), size}) == at_start);
    }
  }
  select(fastest_supported());
}

}  // namespace
}  // namespace uroce::icrc
