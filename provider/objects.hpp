// The provider's verbs objects: what libibverbs sees, followed by what the engine knows it by.
//
// Each begins with libibverbs' structure, so that a pointer to that converts. Objects are made and
// destroyed by the file that serves their verbs; a context keeps a register of the living ones,
// against which pointers from the application are checked before they are followed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <unordered_set>

#include "datapath/device.hpp"
#include "provider/abi34.hpp"
#include "provider/event_pipe.hpp"
#include "provider/spinlock.hpp"

namespace uroce::provider {

struct Context;

// Completion vectors offered. One lane produces all completions, so they differ in name only.
inline constexpr int kCompletionVectors = 8;

struct Channel {
  ibv_comp_channel verbs{};
  std::unique_ptr<EventPipe> events;
};

struct Pd {
  ibv_pd verbs{};
  PdId id;
  std::atomic<uint32_t> address_handles{0};
};

struct Mr {
  abi34::Mr verbs{};
};

struct Ah {
  ibv_ah verbs{};
  transport::AddressVector address;
};

struct Cq {
  abi34::Cq verbs{};
  Context* context = nullptr;
  datapath::OpenDevice* device = nullptr;
  transport::CompletionQueue* engine = nullptr;
  Spinlock lock;                  // the consumer's: poll, arm, and the engine when it removes
  Channel* channel = nullptr;     // null: no completion events
  transport::Completion current;  // between start_poll and end_poll, under `lock`
  EventSource completion_events{reinterpret_cast<uintptr_t>(this)};
  EventSource async_events{reinterpret_cast<uintptr_t>(this)};
};

struct Qp {
  abi34::Qp verbs{};
  Context* context = nullptr;
  datapath::OpenDevice* device = nullptr;
  transport::QueuePair* engine = nullptr;
  Spinlock send_lock;
  Spinlock receive_lock;
  EventSource async_events{reinterpret_cast<uintptr_t>(this)};
};

static_assert(std::is_standard_layout_v<Cq> && std::is_standard_layout_v<Qp>);
static_assert(offsetof(Cq, verbs) == 0 && offsetof(Qp, verbs) == 0);

inline Pd& of(ibv_pd* pd) {
  return *reinterpret_cast<Pd*>(pd);
}
inline Ah& of(ibv_ah* ah) {
  return *reinterpret_cast<Ah*>(ah);
}
inline Cq& of(ibv_cq* cq) {
  return *reinterpret_cast<Cq*>(cq);
}
inline Cq& of(ibv_cq_ex* cq) {
  return *reinterpret_cast<Cq*>(cq);
}
inline Qp& of(ibv_qp* qp) {
  return *reinterpret_cast<Qp*>(qp);
}
inline Channel& of(ibv_comp_channel* channel) {
  return *reinterpret_cast<Channel*>(channel);
}

// The living objects of one kind in one context.
template <typename T>
class Living {
 public:
  void add(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    objects_.insert(object.release());
  }
  // Does not follow the pointer, which may dangle.
  bool contains(const void* object) const {
    const std::lock_guard lock(mutex_);
    return objects_.contains(static_cast<T*>(const_cast<void*>(object)));
  }
  // Null if it does not live here.
  std::unique_ptr<T> remove(const void* object) {
    const std::lock_guard lock(mutex_);
    auto* const known = static_cast<T*>(const_cast<void*>(object));
    return std::unique_ptr<T>(objects_.erase(known) != 0 ? known : nullptr);
  }
  // Null when none is left.
  std::unique_ptr<T> remove_any() {
    const std::lock_guard lock(mutex_);
    if (objects_.empty()) return nullptr;
    std::unique_ptr<T> object(*objects_.begin());
    objects_.erase(objects_.begin());
    return object;
  }
  // In a forked child, where the lock's holder may not exist.
  template <typename Visitor>
  void for_each_unlocked(Visitor visit) {
    for (T* object : objects_) visit(*object);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<T*> objects_;
};

struct Context {
  void close_pipes_in_child();

  verbs_context* verbs = nullptr;
  std::shared_ptr<datapath::OpenDevice> device;
  std::unique_ptr<EventPipe> async_pipe;
  EventSource port_events{1};  // the element of a port's event is its number
  Living<Channel> channels;
  Living<Pd> pds;
  Living<Mr> mrs;
  Living<Ah> ahs;
  Living<Cq> cqs;
  Living<Qp> qps;
};

// What libibverbs allocates for a context.
struct ContextShell {
  verbs_context verbs;
  Context* context;
};

inline Context& of(ibv_context* context) {
  auto* const shell = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
  return *reinterpret_cast<ContextShell*>(shell)->context;
}

}  // namespace uroce::provider
