// Takes completion and asynchronous events from the engine, under its lane lock, to the pipes.
#include "provider/events.hpp"

#include <pthread.h>

#include <map>
#include <mutex>
#include <set>

namespace uroce::provider {
namespace {

// Never destroyed: events may come while the process exits.
struct Registry {
  std::mutex mutex;
  std::set<Context*> contexts;
  std::map<std::string, std::unique_ptr<transport::EventSink>> sinks;
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

class DeviceEvents final : public transport::EventSink {
 public:
  explicit DeviceEvents(std::string device_name) : device_name_(std::move(device_name)) {}

  void on_completion_event(transport::CompletionQueue& engine) override {
    Cq& cq = *static_cast<Cq*>(engine.owner());
    if (cq.channel != nullptr) cq.channel->events->raise(cq.completion_events, 0);
  }

  void on_async_event(transport::AsyncEventType type, void* subject) override {
    using transport::AsyncEventType;
    const auto number = static_cast<uint32_t>(type);
    switch (type) {
      case AsyncEventType::kCqError: {
        Cq& cq = *static_cast<Cq*>(subject);
        return cq.context->async_pipe->raise(cq.async_events, number);
      }
      case AsyncEventType::kQpFatal:
      case AsyncEventType::kQpRequestError:
      case AsyncEventType::kQpAccessError:
      case AsyncEventType::kCommunicationEstablished:
      case AsyncEventType::kSqDrained:
      case AsyncEventType::kQpLastWqeReached: {
        Qp& qp = *static_cast<Qp*>(subject);
        return qp.context->async_pipe->raise(qp.async_events, number);
      }
      case AsyncEventType::kDeviceFatal:
      case AsyncEventType::kPortActive:
      case AsyncEventType::kPortError:
      case AsyncEventType::kGidChange:
        return tell_contexts(number);
      case AsyncEventType::kSrqLimitReached:
        return;  // no queue of this provider raises it
    }
  }

  void lock_consumer(transport::CompletionQueue& engine) override {
    static_cast<Cq*>(engine.owner())->lock.lock();
  }
  void unlock_consumer(transport::CompletionQueue& engine) override {
    static_cast<Cq*>(engine.owner())->lock.unlock();
  }

 private:
  void tell_contexts(uint32_t type) {
    const std::lock_guard lock(registry().mutex);
    for (Context* context : registry().contexts) {
      if (context->device->description().name != device_name_) continue;
      context->async_pipe->raise(context->port_events, type);
    }
  }

  const std::string device_name_;
};

// Another thread may have held the mutex at the fork: then the pipes stay open until exec.
void close_pipes_in_child() {
  if (!registry().mutex.try_lock()) return;
  for (Context* context : registry().contexts) context->close_pipes_in_child();
  registry().mutex.unlock();
}

}  // namespace

transport::EventSink& events_of(const std::string& device_name) {
  const std::lock_guard lock(registry().mutex);
  auto& sink = registry().sinks[device_name];
  if (sink == nullptr) sink = std::make_unique<DeviceEvents>(device_name);
  return *sink;
}

void add_context(Context& context) {
  static const int registered = pthread_atfork(nullptr, nullptr, close_pipes_in_child);
  static_cast<void>(registered);  // ENOMEM: the child keeps a few descriptors until exec
  const std::lock_guard lock(registry().mutex);
  registry().contexts.insert(&context);
}

void remove_context(Context& context) {
  const std::lock_guard lock(registry().mutex);
  registry().contexts.erase(&context);
}

}  // namespace uroce::provider
