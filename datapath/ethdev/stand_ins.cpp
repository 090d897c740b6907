// Stand-ins for the few functions that DPDK's archives take from libnuma and libbsd. Without them
// every program that loads the plug-in would load three more libraries, whose set-up (libnuma's
// tries memory policies) costs more than ours. Hidden: only our DPDK sees them.
#include <cerrno>
#include <cstddef>

struct bitmask;

extern "C" {

// EAL places hugepages on NUMA nodes with these; it runs without hugepages, and is told that there
// is no NUMA.
int numa_available() {
  return -1;
}
void numa_set_localalloc() {}
void numa_set_preferred(int) {}
bitmask* numa_allocate_nodemask() {
  return nullptr;
}
void numa_bitmask_free(bitmask*) {}
long get_mempolicy(int*, unsigned long*, unsigned long, void*, unsigned) {
  errno = ENOSYS;
  return -1;
}
long set_mempolicy(int, const unsigned long*, unsigned long) {
  errno = ENOSYS;
  return -1;
}

// As strcpy, into `room` bytes at most, always terminated; returns the length of `from`.
size_t strlcpy(char* to, const char* from, size_t room) {
  size_t length = 0;
  for (; from[length] != 0; ++length) {
    if (length + 1 < room) to[length] = from[length];
  }
  if (room != 0) to[length < room ? length : room - 1] = 0;
  return length;
}

// As strcat, within the `room` bytes at `to`; returns the length that it tried to make.
size_t strlcat(char* to, const char* from, size_t room) {
  size_t used = 0;
  while (used < room && to[used] != 0) ++used;
  return used + strlcpy(to + used, from, room - used);
}

}  // extern "C"
