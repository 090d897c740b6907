// Looks a range up in /proc/self/maps.
#include "provider/mapped_range.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "provider/refusal.hpp"

namespace uroce::provider {
namespace {

struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool readable = false;
  bool writable = false;
};

// "7f0c1e200000-7f0c1e228000 r--p 00000000 fe:00 1234 /usr/lib/…"
Mapping parse_line(std::string_view line) {
  Mapping mapping;
  const char* const last = line.data() + line.size();
  const char* at = std::from_chars(line.data(), last, mapping.begin, 16).ptr;
  if (at == last) return {};
  at = std::from_chars(at + 1, last, mapping.end, 16).ptr;
  if (last - at < 3) return {};
  mapping.readable = at[1] == 'r';
  mapping.writable = at[2] == 'w';
  return mapping;
}

// Covers a range piece by piece with mappings in ascending order.
class Coverage {
 public:
  Coverage(uint64_t begin, uint64_t end, bool writable)
      : uncovered_(begin), end_(end), writable_(writable) {}

  bool complete() const { return uncovered_ >= end_; }
  // False once the range is known to have a hole or a page of lesser rights.
  bool add(const Mapping& mapping) {
    if (mapping.end <= uncovered_) return true;
    if (mapping.begin > uncovered_) return false;
    if (!mapping.readable || (writable_ && !mapping.writable)) {
      denied_ = true;
      return false;
    }
    uncovered_ = mapping.end;
    return true;
  }
  uint64_t uncovered() const { return uncovered_; }
  bool denied() const { return denied_; }

 private:
  uint64_t uncovered_;
  const uint64_t end_;
  const bool writable_;
  bool denied_ = false;
};

// Reads the mappings until the range is covered or refuted.
void read_mappings(int fd, Coverage& coverage) {
  std::array<char, 16384> buffer;
  size_t held = 0;
  while (!coverage.complete()) {
    const ssize_t got = read(fd, buffer.data() + held, buffer.size() - held);
    if (got <= 0) return;
    std::string_view text(buffer.data(), held + static_cast<size_t>(got));
    for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
      if (!coverage.add(parse_line(text.substr(0, end))) || coverage.complete()) return;
    }
    if (text.size() == buffer.size()) return;  // no path is that long
    held = text.copy(buffer.data(), text.size());
  }
}

// msync with MS_ASYNC writes nothing, yet fails on a hole.
bool msync_finds_it_mapped(uint64_t begin, uint64_t end) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t first = begin & ~(page - 1);
  return msync(reinterpret_cast<void*>(first), end - first, MS_ASYNC) == 0;
}

}  // namespace

Status check_mapped(const void* address, size_t length, bool writable) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  if (length == 0) return Done{};
  if (begin + length < begin) {
    return because(EFAULT, "reg_mr: {:#x} + {} wraps around the address space", begin, length);
  }
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (msync_finds_it_mapped(begin, begin + length)) return Done{};
    return because(EFAULT, "reg_mr: {:#x}..{:#x} is not mapped", begin, begin + length);
  }
  Coverage coverage(begin, begin + length, writable);
  read_mappings(fd, coverage);
  close(fd);
  if (coverage.complete()) return Done{};
  return because(EFAULT, "reg_mr: {:#x}..{:#x} is {} at {:#x}", begin, begin + length,
                 !coverage.denied() ? "not mapped"
                 : writable         ? "not readable and writable, as IBV_ACCESS_LOCAL_WRITE asks,"
                                    : "not readable",
                 coverage.uncovered());
}

}  // namespace uroce::provider
