// Address handles.
#include <errno.h>

#include "provider/convert.hpp"
#include "provider/refusal.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {

ibv_ah* create_ah(ibv_pd* ibv, ibv_ah_attr* attributes) {
  Context& context = of(ibv->context);
  if (!context.device->alive()) return refuse_object(forked());
  if (!context.pds.contains(ibv)) return refuse_object({EINVAL, "create_ah: no such domain"});
  const auto address = address_from_verbs(*attributes, context.device->description());
  if (!address) return refuse_object(address.refusal());
  auto ah = std::make_unique<Ah>();
  ah->verbs.context = ibv->context;
  ah->verbs.pd = ibv;
  ah->address = address.value();
  ibv_ah* const out = &ah->verbs;
  ++of(ibv).address_handles;
  context.ahs.add(std::move(ah));
  return out;
}

int destroy_ah(ibv_ah* ibv) {
  Context& context = of(ibv->context);
  if (!context.device->alive()) return refuse(forked());
  const auto ah = context.ahs.remove(ibv);
  if (ah == nullptr) return refuse({EINVAL, "destroy_ah: no such address handle"});
  --of(ah->verbs.pd).address_handles;
  return 0;
}

}  // namespace uroce::provider
