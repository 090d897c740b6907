// Protection domains and memory regions.
#include <errno.h>
#include <unistd.h>

#include "provider/mapped_range.hpp"
#include "provider/refusal.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {
namespace {

constexpr transport::AccessFlags kKnownAccess =
    transport::kLocalWrite | transport::kRemoteWrite | transport::kRemoteRead |
    transport::kRemoteAtomic | transport::kMwBind | transport::kZeroBased | transport::kHugeTlb;

// The kernel's own rules (ib_check_mr_access, ib_uverbs_reg_mr).
Status check_access(transport::AccessFlags access) {
  const auto unknown = access & ~kKnownAccess & ~uint32_t{IBV_ACCESS_OPTIONAL_RANGE};
  if ((unknown & transport::kOnDemand) != 0) {
    return because(EINVAL, "reg_mr: IBV_ACCESS_ON_DEMAND, but the device has no on-demand paging");
  }
  if (unknown != 0) return because(EINVAL, "reg_mr: unknown access flags {:#x}", unknown);
  const auto needing = access & (transport::kRemoteWrite | transport::kRemoteAtomic);
  if (needing != 0 && (access & transport::kLocalWrite) == 0) {
    return because(EINVAL,
                   "reg_mr: IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need "
                   "IBV_ACCESS_LOCAL_WRITE too");
  }
  return Done{};
}

Status check_iova(const void* address, uint64_t iova) {
  const auto in_page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) - 1;
  if (((reinterpret_cast<uint64_t>(address) ^ iova) & in_page) == 0) return Done{};
  return because(EINVAL, "reg_mr: iova {:#x} and address {} differ within the page", iova, address);
}

}  // namespace

ibv_pd* alloc_pd(ibv_context* ibv) {
  Context& context = of(ibv);
  if (!context.device->alive()) return refuse_object(forked());
  auto id = context.device->create_pd();
  if (!id) return refuse_object(id.refusal());
  auto pd = std::make_unique<Pd>();
  pd->verbs.context = ibv;
  pd->verbs.handle = id->value;
  pd->id = *id;
  ibv_pd* const out = &pd->verbs;
  context.pds.add(std::move(pd));
  return out;
}

int dealloc_pd(ibv_pd* ibv) {
  Context& context = of(ibv->context);
  if (!context.device->alive()) return refuse(forked());
  if (!context.pds.contains(ibv)) return refuse({EINVAL, "dealloc_pd: no such protection domain"});
  if (of(ibv).address_handles != 0) {
    return refuse({EBUSY, "dealloc_pd: address handles still use the domain"});
  }
  const auto done = context.device->destroy_pd(of(ibv).id);
  if (!done) return refuse(done.refusal());
  context.pds.remove(ibv);
  return 0;
}

ibv_mr* reg_mr(ibv_pd* ibv, void* address, size_t length, uint64_t iova, int access_flags) {
  Context& context = of(ibv->context);
  const auto access = static_cast<transport::AccessFlags>(access_flags);
  if (!context.device->alive()) return refuse_object(forked());
  if (!context.pds.contains(ibv)) return refuse_object({EINVAL, "reg_mr: no such domain"});
  const bool writable = (access & transport::kLocalWrite) != 0;
  for (const auto& done :
       {check_access(access), check_iova(address, iova), check_mapped(address, length, writable)}) {
    if (!done) return refuse_object(done.refusal());
  }
  transport::RegionAttributes attributes;
  attributes.pd = of(ibv).id;
  attributes.address = static_cast<std::byte*>(address);
  attributes.length = length;
  attributes.iova = (access & transport::kZeroBased) != 0 ? 0 : iova;
  attributes.access = access & (kKnownAccess | transport::kRelaxedOrdering);
  const auto key = context.device->register_region(attributes);
  if (!key) return refuse_object(key.refusal());

  auto mr = std::make_unique<Mr>();
  mr->verbs.type = abi34::MrType::kMr;
  mr->verbs.access = access_flags;
  mr->verbs.mr.context = ibv->context;
  mr->verbs.mr.pd = ibv;
  mr->verbs.mr.addr = address;
  mr->verbs.mr.length = length;
  mr->verbs.mr.handle = key.value();
  mr->verbs.mr.lkey = mr->verbs.mr.rkey = key.value();
  ibv_mr* const out = &mr->verbs.mr;
  context.mrs.add(std::move(mr));
  return out;
}

int dereg_mr(abi34::Mr* ibv) {
  Context& context = of(ibv->mr.context);
  if (!context.device->alive()) return refuse(forked());
  if (!context.mrs.contains(ibv)) return refuse({EINVAL, "dereg_mr: no such memory region"});
  const auto done = context.device->deregister_region(Lkey{ibv->mr.lkey});
  if (!done) return refuse(done.refusal());
  context.mrs.remove(ibv);
  return 0;
}

}  // namespace uroce::provider
