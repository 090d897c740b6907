// Which ranges of memory may be registered.
#include "provider/mapped_range.hpp"

#include <errno.h>
#include <sys/mman.h>

#include "tests/catch.hpp"

namespace uroce::provider {
namespace {

constexpr size_t kPage = 4096;

// Pages that each test carves holes and rights into.
struct Pages {
  explicit Pages(size_t count) : bytes(count * kPage) {
    void* const got =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(got != MAP_FAILED);
    begin = static_cast<std::byte*>(got);
  }
  ~Pages() { munmap(begin, bytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void protect(size_t page, int rights) const {
    REQUIRE(mprotect(begin + page * kPage, kPage, rights) == 0);
  }

  size_t bytes;
  std::byte* begin;
};

int error_of(const Status& status) {
  return status ? 0 : status.refusal().error;
}

TEST_CASE("a mapped range may be registered, wherever it begins and ends") {
  const Pages pages(4);
  CHECK(error_of(check_mapped(pages.begin, pages.bytes, true)) == 0);
  CHECK(error_of(check_mapped(pages.begin + 1, 1, true)) == 0);
  CHECK(error_of(check_mapped(pages.begin + kPage - 1, 2, true)) == 0);
  int on_stack = 0;
  CHECK(error_of(check_mapped(&on_stack, sizeof on_stack, true)) == 0);
}

TEST_CASE("an empty range is no memory and always allowed") {
  CHECK(error_of(check_mapped(nullptr, 0, true)) == 0);
}

TEST_CASE("a hole at the begin, in the middle or at the end is refused") {
  const Pages pages(5);
  REQUIRE(munmap(pages.begin + 2 * kPage, kPage) == 0);
  CHECK(error_of(check_mapped(pages.begin, pages.bytes, false)) == EFAULT);
  CHECK(error_of(check_mapped(pages.begin, 2 * kPage + 1, false)) == EFAULT);
  CHECK(error_of(check_mapped(pages.begin + 3 * kPage - 1, 2, false)) == EFAULT);
  CHECK(error_of(check_mapped(pages.begin, 2 * kPage, false)) == 0);
  CHECK(error_of(check_mapped(pages.begin + 3 * kPage, 2 * kPage, false)) == 0);
}

TEST_CASE("a null pointer and a range that wraps are refused") {
  CHECK(error_of(check_mapped(nullptr, 1, false)) == EFAULT);
  CHECK(error_of(check_mapped(reinterpret_cast<void*>(~uintptr_t{15}), 32, false)) == EFAULT);
}

TEST_CASE("memory that is read-only may be registered for reading only") {
  const Pages pages(3);
  pages.protect(1, PROT_READ);
  CHECK(error_of(check_mapped(pages.begin, pages.bytes, false)) == 0);
  const auto refused = check_mapped(pages.begin, pages.bytes, true);
  REQUIRE(error_of(refused) == EFAULT);
  CHECK(refused.refusal().why.find("IBV_ACCESS_LOCAL_WRITE") != std::string::npos);
  CHECK(error_of(check_mapped(pages.begin, kPage, true)) == 0);
}

TEST_CASE("memory without any right is refused") {
  const Pages pages(3);
  pages.protect(1, PROT_NONE);
  CHECK(error_of(check_mapped(pages.begin, pages.bytes, false)) == EFAULT);
}

TEST_CASE("a range over more mappings than one read of the list returns is found whole") {
  const size_t count = 2000;
  const Pages pages(count);
  for (size_t page = 0; page < count; page += 2) pages.protect(page, PROT_READ);
  CHECK(error_of(check_mapped(pages.begin, pages.bytes, false)) == 0);
  pages.protect(count - 1, PROT_NONE);
  CHECK(error_of(check_mapped(pages.begin, pages.bytes, false)) == EFAULT);
}

}  // namespace
}  // namespace uroce::provider
