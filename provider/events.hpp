// Where the engine's events enter the provider, and the contexts that hear of a device's events.
#pragma once

#include <string>

#include "provider/objects.hpp"

namespace uroce::provider {

// The sink of a device's events; one for each device name, for the life of the process.
transport::EventSink& events_of(const std::string& device_name);

// From here to there the context hears of its port's events, and in a forked child its pipes are
// closed.
void add_context(Context& context);
void remove_context(Context& context);

}  // namespace uroce::provider
