// Whether a program may register a range of its memory.
#pragma once

#include <cstddef>

#include "transport/result.hpp"

namespace uroce::provider {

// Hardware pins the pages that it registers, so a range that is not mapped, not readable or, if
// asked, not writable fails there. We do not pin, but refuse the same. Costs a walk over the
// process's mappings up to the range's end, not over its pages. Without /proc only whether the
// range is mapped is known. Refusals: EFAULT.
Status check_mapped(const void* address, size_t length, bool writable);

}  // namespace uroce::provider
