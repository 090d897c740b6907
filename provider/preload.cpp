// The preload: adds our devices to what libibverbs lists, and serves the calls for which libibverbs
// would talk to the kernel instead of a provider.
//
// It is loaded into every program of an environment, most of which have nothing to do with RDMA: it
// has no constructor, needs nothing but libc, and looks for libibverbs and the plug-in only when
// one of its functions is called. A versioned reference to libibverbs binds to it because
// preload.map gives its functions the versions that libibverbs gives them.
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "provider/engine_table.hpp"

namespace uroce::provider {
namespace {

constexpr const char* kLibibverbs = "libibverbs.so.1";
// Where the plug-in lies, seen from the preload's folder: in the build folder, and installed.
constexpr const char* kPluginPlaces[] = {"/liburoce-rdmav34.so",
                                         "/../libibverbs/liburoce-rdmav34.so"};

// libibverbs' own functions. All null if the program has no libibverbs that we can use.
struct Real {
  ibv_device** (*get_device_list)(int* count);
  ibv_context* (*open_device)(ibv_device* device);
  ibv_context* (*import_device)(int command_fd);
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
};

Real real;
const EngineTable* engine;  // null: this process has no devices of ours
pthread_once_t once = PTHREAD_ONCE_INIT;

// To stderr: the log lives in the plug-in, which may be what is missing.
void complain(const char* what, const char* detail) {
  const auto piece = [](const char* text) { return iovec{const_cast<char*>(text), strlen(text)}; };
  const iovec line[] = {piece("uroce: "), piece(what), piece(": "), piece(detail), piece("\n")};
  if (writev(STDERR_FILENO, line, sizeof line / sizeof *line) < 0) return;  // nobody to tell
}

template <typename Function>
void find(void* library, const char* name, const char* version, Function*& out) {
  out = reinterpret_cast<Function*>(dlvsym(library, name, version));
}

// Private ABI 34 has had one table of operations since rdma-core 36, which 1.14 is newer than.
bool has_our_abi(void* libibverbs) {
  return dlvsym(libibverbs, "verbs_register_driver_34", "IBVERBS_PRIVATE_34") != nullptr &&
         dlvsym(libibverbs, "ibv_query_qp_data_in_order", "IBVERBS_1.14") != nullptr;
}

const EngineTable* load_engine_from(const char* path) {
  void* const plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    complain("cannot load the plug-in", dlerror());
    return nullptr;
  }
  const auto* const table = static_cast<const EngineTable*>(dlsym(plugin, kEngineTableSymbol));
  if (table == nullptr || table->version != kEngineTableVersion) {
    complain("plug-in and preload are of different builds; reinstall uroce", path);
    return nullptr;
  }
  return table;
}

const EngineTable* load_engine() {
  Dl_info self;
  char own_path[PATH_MAX];
  if (dladdr(reinterpret_cast<void*>(&load_engine), &self) == 0 ||
      realpath(self.dli_fname, own_path) == nullptr) {
    complain("cannot find the plug-in beside the preload", "its own path is unknown");
    return nullptr;
  }
  *strrchr(own_path, '/') = '\0';
  for (const char* place : kPluginPlaces) {
    char path[PATH_MAX];
    if (strlen(own_path) + strlen(place) >= sizeof path) continue;
    strcat(strcpy(path, own_path), place);
    char resolved[PATH_MAX];  // libibverbs may load the same file: one path, one copy
    if (realpath(path, resolved) != nullptr) return load_engine_from(resolved);
  }
  complain("there is no plug-in beside the preload", own_path);
  return nullptr;
}

void initialise() {
  void* const libibverbs = dlopen(kLibibverbs, RTLD_LAZY | RTLD_LOCAL);
  if (libibverbs == nullptr) return;
  find(libibverbs, "ibv_get_device_list", "IBVERBS_1.1", real.get_device_list);
  find(libibverbs, "ibv_open_device", "IBVERBS_1.1", real.open_device);
  find(libibverbs, "ibv_import_device", "IBVERBS_1.10", real.import_device);
  find(libibverbs, "ibv_create_comp_channel", "IBVERBS_1.0", real.create_comp_channel);
  find(libibverbs, "ibv_destroy_comp_channel", "IBVERBS_1.0", real.destroy_comp_channel);
  if (!has_our_abi(libibverbs)) {
    complain("no uroce devices",
             "this libibverbs has another private ABI than 34; uroce is built for rdma-core 39 to "
             "56");
    return;
  }
  engine = load_engine();
}

const Real& libibverbs() {
  const int kept = errno;
  pthread_once(&once, initialise);
  errno = kept;
  return real;
}

bool is_ours(const ibv_context* context) {
  return engine != nullptr && engine->owns_device(context->device);
}

int length_of(ibv_device** list) {
  int length = 0;
  while (list != nullptr && list[length] != nullptr) ++length;
  return length;
}

// The kernel's devices, then ours. Takes over both lists' references.
ibv_device** join(ibv_device** kernel, ibv_device** ours, int our_count) {
  const int kernel_count = length_of(kernel);
  const auto room = static_cast<size_t>(kernel_count + our_count) + 1;
  auto** const list = static_cast<ibv_device**>(calloc(room, sizeof *kernel));
  if (list == nullptr) return kernel;
  for (int i = 0; i < kernel_count; ++i) list[i] = kernel[i];
  for (int i = 0; i < our_count; ++i) list[kernel_count + i] = ours[i];
  free(kernel);
  return list;
}

}  // namespace

extern "C" {

// Without ib_core in the kernel the real call fails with ENOSYS; then the list is ours alone.
ibv_device** ibv_get_device_list(int* count) {
  if (libibverbs().get_device_list == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  ibv_device** list = real.get_device_list(nullptr);
  if (engine != nullptr) {
    const int kept = errno;
    ibv_device* ours[kMaxListedDevices];
    const int our_count = engine->list_devices(ours);
    if (our_count >= 0) {
      list = join(list, ours, our_count);
      errno = kept;
    }
  }
  if (count != nullptr) *count = length_of(list);
  return list;
}

ibv_context* ibv_open_device(ibv_device* device) {
  if (libibverbs().open_device == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  const bool ours = engine != nullptr && engine->owns_device(device);
  return ours ? engine->open_device(device) : real.open_device(device);
}

// The command descriptor of our contexts is /dev/null; a kernel device's is never.
ibv_context* ibv_import_device(int command_fd) {
  if (libibverbs().import_device == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  struct stat status;
  if (engine != nullptr && fstat(command_fd, &status) == 0 && S_ISCHR(status.st_mode) &&
      status.st_rdev == makedev(1, 3)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return real.import_device(command_fd);
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (libibverbs().create_comp_channel == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  return is_ours(context) ? engine->create_comp_channel(context)
                          : real.create_comp_channel(context);
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  if (libibverbs().destroy_comp_channel == nullptr) return ENOSYS;
  return is_ours(channel->context) ? engine->destroy_comp_channel(channel)
                                   : real.destroy_comp_channel(channel);
}

}  // extern "C"

}  // namespace uroce::provider
