// Verbs that this version does not serve but applications try: EOPNOTSUPP, with a sentence in the
// log. (libibverbs answers EOPNOTSUPP by itself, silently, for every empty entry.)
#pragma once

#include "provider/abi34.hpp"

namespace uroce::provider {

void refuse_unserved(abi34::ContextOps& ops);

}  // namespace uroce::provider
