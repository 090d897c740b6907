// Extended completion queues: one completion at a time, read by accessors.
#include <errno.h>

#include <algorithm>
#include <limits>

#include "provider/convert.hpp"
#include "provider/refusal.hpp"
#include "provider/verbs.hpp"

namespace uroce::provider {
namespace {

// Takes the next completion into cq.current; the caller holds cq.lock. ENOENT: none.
int take(Cq& cq) {
  if (cq.engine->poll({&cq.current, 1}) == 0) return ENOENT;
  cq.verbs.cq_ex.wr_id = cq.current.wr_id;
  cq.verbs.cq_ex.status = static_cast<ibv_wc_status>(cq.current.status);
  return 0;
}

// On success the queue stays locked until end_poll, as the verb demands.
int start_poll(ibv_cq_ex* ibv, ibv_poll_cq_attr* attributes) {
  Cq& cq = of(ibv);
  if (!cq.device->alive()) return EIO;
  if (attributes->comp_mask != 0) return EINVAL;
  cq.lock.lock();
  if (take(cq) == 0) return 0;
  cq.lock.unlock();
  cq.device->progress();
  cq.lock.lock();
  if (take(cq) == 0) return 0;
  cq.lock.unlock();
  return ENOENT;
}

int next_poll(ibv_cq_ex* ibv) {
  return take(of(ibv));
}

void end_poll(ibv_cq_ex* ibv) {
  of(ibv).lock.unlock();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* ibv) {
  return static_cast<ibv_wc_opcode>(of(ibv).current.opcode);
}

uint32_t read_vendor_err(ibv_cq_ex* ibv) {
  return of(ibv).current.vendor_error;
}

uint32_t read_byte_len(ibv_cq_ex* ibv) {
  return of(ibv).current.byte_length;
}

__be32 read_imm_data(ibv_cq_ex* ibv) {
  return of(ibv).current.immediate;
}

uint32_t read_qp_num(ibv_cq_ex* ibv) {
  return of(ibv).current.qpn.value;
}

uint32_t read_src_qp(ibv_cq_ex* ibv) {
  return of(ibv).current.source_qpn.value;
}

unsigned read_wc_flags(ibv_cq_ex* ibv) {
  return of(ibv).current.flags;
}

uint32_t read_slid(ibv_cq_ex*) {
  return 0;  // RoCE has no LIDs
}

uint8_t read_sl(ibv_cq_ex*) {
  return 0;
}

uint8_t read_dlid_path_bits(ibv_cq_ex*) {
  return 0;
}

Status check_creation(const ibv_cq_init_attr_ex& attributes) {
  if ((attributes.wc_flags & ~uint64_t{IBV_WC_STANDARD_FLAGS}) != 0) {
    return because(EOPNOTSUPP, "create_cq_ex: wc_flags {:#x} are not supported",
                   attributes.wc_flags & ~uint64_t{IBV_WC_STANDARD_FLAGS});
  }
  const uint32_t flags =
      (attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attributes.flags : 0;
  if ((attributes.comp_mask & ~uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0 ||
      (flags & ~uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) != 0) {
    return because(EOPNOTSUPP, "create_cq_ex: comp_mask {:#x} with flags {:#x} is not supported",
                   attributes.comp_mask, flags);
  }
  return Done{};
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  const auto allowed = check_creation(*attributes);
  if (!allowed) return refuse_object(allowed.refusal());
  constexpr auto kMax = static_cast<uint32_t>(std::numeric_limits<int>::max());
  ibv_cq* const cq =
      create_cq(context, static_cast<int>(std::min(attributes->cqe, kMax)), attributes->channel,
                static_cast<int>(std::min(attributes->comp_vector, kMax)));
  if (cq == nullptr) return nullptr;
  ibv_cq_ex& out = of(cq).verbs.cq_ex;
  out.start_poll = start_poll;
  out.next_poll = next_poll;
  out.end_poll = end_poll;
  out.read_opcode = read_opcode;
  out.read_vendor_err = read_vendor_err;
  out.read_byte_len = read_byte_len;
  out.read_imm_data = read_imm_data;
  out.read_qp_num = read_qp_num;
  out.read_src_qp = read_src_qp;
  out.read_wc_flags = read_wc_flags;
  out.read_slid = read_slid;
  out.read_sl = read_sl;
  out.read_dlid_path_bits = read_dlid_path_bits;
  return &out;
}

}  // namespace uroce::provider
