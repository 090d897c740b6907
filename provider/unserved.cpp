// Refuses what is not served.
#include "provider/unserved.hpp"

#include <errno.h>

#include <algorithm>
#include <cstddef>

#include "provider/refusal.hpp"

namespace uroce::provider {
namespace {

template <size_t size>
struct Name {
  consteval Name(const char (&literal)[size]) { std::copy_n(literal, size, text); }
  char text[size];
};

Refusal unserved(const char* verb) {
  return because(EOPNOTSUPP, "{} is not supported by this version", verb);
}

// In place of verbs that return an object. They take arguments, which the calling convention lets
// us ignore; libibverbs' own compatibility table relies on the same.
template <Name verb>
void* no_object() {
  return refuse_object(unserved(verb.text));
}

// In place of verbs that return an errno value.
template <Name verb>
int no_success() {
  return refuse(unserved(verb.text));
}

template <Name verb>
const auto kNoObject = reinterpret_cast<abi34::UnusedOp>(no_object<verb>);
template <Name verb>
const auto kNoSuccess = reinterpret_cast<abi34::UnusedOp>(no_success<verb>);

}  // namespace

void refuse_unserved(abi34::ContextOps& ops) {
  ops.alloc_dm = kNoObject<"alloc_dm">;
  ops.alloc_mw = kNoObject<"alloc_mw">;
  ops.alloc_null_mr = kNoObject<"alloc_null_mr">;
  ops.alloc_parent_domain = kNoObject<"alloc_parent_domain">;
  ops.alloc_td = kNoObject<"alloc_td">;
  ops.create_counters = kNoObject<"create_counters">;
  ops.create_flow = kNoObject<"create_flow">;
  ops.create_rwq_ind_table = kNoObject<"create_rwq_ind_table">;
  ops.create_srq = kNoObject<"create_srq">;
  ops.create_srq_ex = kNoObject<"create_srq_ex">;
  ops.create_wq = kNoObject<"create_wq">;
  ops.open_qp = kNoObject<"open_qp">;
  ops.open_xrcd = kNoObject<"open_xrcd">;
  ops.reg_dmabuf_mr = kNoObject<"reg_dmabuf_mr">;
  ops.advise_mr = kNoSuccess<"advise_mr">;
  ops.attach_mcast = kNoSuccess<"attach_mcast">;
  ops.detach_mcast = kNoSuccess<"detach_mcast">;
  ops.modify_cq = kNoSuccess<"modify_cq">;
  ops.modify_qp_rate_limit = kNoSuccess<"modify_qp_rate_limit">;
  ops.resize_cq = kNoSuccess<"resize_cq">;
}

}  // namespace uroce::provider
