// What the device advertises is what it enforces, and what it lacks it says by EOPNOTSUPP.
#include <errno.h>
#include <string.h>

#include <array>

#include "tests/e2e/verbs_kit.hpp"

namespace uroce::e2e {
namespace {

ibv_device_attr attributes_of(const Context& context) {
  ibv_device_attr attributes{};
  require(ibv_query_device(context.get(), &attributes) == 0, "query_device");
  return attributes;
}

ibv_qp* try_qp(const Pd& pd, const Cq& cq, const ibv_qp_cap& cap) {
  ibv_qp_init_attr init{};
  init.send_cq = cq.get();
  init.recv_cq = cq.get();
  init.cap = cap;
  init.qp_type = IBV_QPT_RC;
  errno = 0;
  ibv_qp* const qp = ibv_create_qp(pd.get(), &init);
  if (qp != nullptr) {
    require(init.cap.max_send_wr >= cap.max_send_wr && init.cap.max_recv_wr >= cap.max_recv_wr &&
                init.cap.max_send_sge >= cap.max_send_sge &&
                init.cap.max_recv_sge >= cap.max_recv_sge &&
                init.cap.max_inline_data >= cap.max_inline_data,
            "create_qp grants less than was asked");
  }
  return qp;
}

void require_qp(const Pd& pd, const Cq& cq, const ibv_qp_cap& cap, bool allowed,
                std::string_view what) {
  Qp qp(try_qp(pd, cq, cap));
  require((qp != nullptr) == allowed, "{}: {}", what, qp ? "granted" : strerror(errno));
  require(allowed || errno == EINVAL, "{}: errno {} instead of EINVAL", what, errno);
}

void queue_pair_limits(const Context& context, const Pd& pd) {
  const ibv_device_attr limits = attributes_of(context);
  const Cq cq = make_cq(context, 16);
  const auto wr = static_cast<uint32_t>(limits.max_qp_wr);
  const auto sge = static_cast<uint32_t>(limits.max_sge);
  require_qp(pd, cq, {wr, wr, 1, 1, 0}, true, "max_qp_wr");
  require_qp(pd, cq, {wr, wr, sge, sge, 0}, true, "max_qp_wr with max_sge");
  require_qp(pd, cq, {wr + 1, 1, 1, 1, 0}, false, "max_send_wr above the limit");
  require_qp(pd, cq, {1, wr + 1, 1, 1, 0}, false, "max_recv_wr above the limit");
  require_qp(pd, cq, {1, 1, sge + 1, 1, 0}, false, "max_send_sge above the limit");
  require_qp(pd, cq, {1, 1, 1, sge + 1, 0}, false, "max_recv_sge above the limit");
  require_qp(pd, cq, {1, 1, 1, 1, 512}, true, "512 bytes of inline data");
  require_qp(pd, cq, {1, 1, 1, 1, 1u << 20}, false, "a megabyte of inline data");
  require_qp(pd, cq, {1, 1, 1, 1, 0}, true, "a small queue pair");
}

void queue_limits(const Context& context) {
  const ibv_device_attr limits = attributes_of(context);
  (void)make_cq(context, 1);
  const Cq largest = make_cq(context, limits.max_cqe);
  require(largest->cqe >= limits.max_cqe, "a CQ of {} entries has {}", limits.max_cqe,
          largest->cqe);
  for (const int entries : {0, -1, limits.max_cqe + 1}) {
    errno = 0;
    require(ibv_create_cq(context.get(), entries, nullptr, nullptr, 0) == nullptr,
            "a CQ of {} entries was granted", entries);
    require(errno == EINVAL, "a CQ of {} entries: errno {}", entries, errno);
  }
  require(ibv_create_cq(context.get(), 1, nullptr, nullptr, context->num_comp_vectors) == nullptr &&
              errno == EINVAL,
          "a completion vector out of range");
}

// Makes as many as are advertised; one more is refused; then all are destroyed.
template <typename Make>
void require_count(int advertised, std::string_view what, Make make) {
  using Object = decltype(make());
  std::vector<Object> objects;
  objects.reserve(static_cast<size_t>(advertised));
  for (int i = 0; i < advertised; ++i) {
    Object object = make();
    require(object != nullptr, "{} {} of {}: {}", what, i + 1, advertised, strerror(errno));
    objects.push_back(std::move(object));
  }
  errno = 0;
  Object surplus = make();
  require(surplus == nullptr, "one more {} than {} was granted", what, advertised);
  require(errno == ENOMEM, "one {} too many: errno {} instead of ENOMEM", what, errno);
}

void object_counts(const Context& context) {
  const ibv_device_attr limits = attributes_of(context);
  require_count(limits.max_pd, "PD", [&] { return Pd(ibv_alloc_pd(context.get())); });
  const Pd pd = make_pd(context);
  require_count(limits.max_cq, "CQ",
                [&] { return Cq(ibv_create_cq(context.get(), 1, nullptr, nullptr, 0)); });
  const Cq cq = make_cq(context, 16);
  require_count(limits.max_qp, "QP", [&] { return Qp(try_qp(pd, cq, {1, 1, 1, 1, 0})); });
}

void full_queues(const Options& options, SideChannel& channel, const Context& context,
                 const Pd& pd) {
  PairOptions pair;
  pair.max_wr = 64;
  const auto side = connect_side(options, channel, context, pd, 4096, pair);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  require(ibv_query_qp(side->qp.get(), &attr, IBV_QP_CAP, &init) == 0, "query_qp");
  const auto post_until_full = [&](uint32_t room, std::string_view what, auto post_one) {
    uint32_t posted = 0;
    int error = 0;
    while (posted <= room && (error = post_one()) == 0) ++posted;
    require(posted == room, "{}: {} posted, {} advertised", what, posted, room);
    require(error == ENOMEM, "a full {} gave {} instead of ENOMEM", what, error);
  };
  post_until_full(init.cap.max_recv_wr, "receive queue", [&] {
    ibv_recv_wr wr{};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(side->qp.get(), &wr, &bad);
  });
  // Slots are free again when their completions have been polled, not before.
  post_until_full(init.cap.max_send_wr, "send queue", [&] {
    Send send;
    ibv_send_wr* bad = nullptr;
    fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 8, 0);
    return ibv_post_send(side->qp.get(), &send.wr, &bad);
  });
  for (uint32_t i = 0; i < init.cap.max_send_wr; ++i) {
    wait_success(side->send_cq.get(), "WRITE of a full queue");
  }
  Send send;
  fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 8, 0);
  post(*side, send.wr);
  wait_success(side->send_cq.get(), "WRITE after the queue was full");
  channel.barrier();
}

void limits_hold(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  queue_pair_limits(context, pd);
  queue_limits(context);
  full_queues(options, channel, context, pd);
}

void maximum_can_be_created(const Options& options, SideChannel&) {
  if (!options.first) return;  // one process is enough, and kinder to small machines
  const Context context = open_device(options.device);
  object_counts(context);
}

// Destroying what is in use: EBUSY, and it goes on working.
void in_use(const Options& options, SideChannel& channel) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const auto side = connect_side(options, channel, context, pd, 4096, {});
  require(ibv_dealloc_pd(pd.get()) == EBUSY, "a PD with a QP and an MR was freed");
  require(ibv_destroy_cq(side->send_cq.get()) == EBUSY, "a QP's send CQ was destroyed");
  require(ibv_destroy_cq(side->recv_cq.get()) == EBUSY, "a QP's receive CQ was destroyed");
  ibv_comp_channel* const events = ibv_create_comp_channel(context.get());
  require(events != nullptr, "create_comp_channel: {}", strerror(errno));
  {
    const Cq cq = make_cq(context, 1, events);
    require(ibv_destroy_comp_channel(events) == EBUSY, "a channel with a CQ was destroyed");
  }
  require(ibv_destroy_comp_channel(events) == 0, "a free channel cannot be destroyed");
  if (options.first) {
    Send send;
    fill_send(send, *side, IBV_WR_RDMA_WRITE, 0, 64, 0);
    post(*side, send.wr);
    wait_success(side->send_cq.get(), "WRITE after the refusals");
  }
  channel.barrier();
}

template <typename T>
void require_unsupported(T* object, std::string_view what) {
  require(object == nullptr, "{} exists", what);
  require(errno == EOPNOTSUPP, "{}: errno {} ({}) instead of EOPNOTSUPP", what, errno,
          strerror(errno));
}

void unsupported_verbs(const Options& options, SideChannel&) {
  const Context context = open_device(options.device);
  const Pd pd = make_pd(context);
  const Cq cq = make_cq(context, 4);
  ibv_srq_init_attr srq{};
  srq.attr = {4, 1, 0};
  errno = 0;
  require_unsupported(ibv_create_srq(pd.get(), &srq), "create_srq");
  errno = 0;
  require_unsupported(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1), "alloc_mw");
  errno = 0;
  ibv_xrcd_init_attr xrcd{};
  xrcd.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  xrcd.fd = -1;
  require_unsupported(ibv_open_xrcd(context.get(), &xrcd), "open_xrcd");
  errno = 0;
  ibv_alloc_dm_attr dm{};
  dm.length = 64;
  require_unsupported(ibv_alloc_dm(context.get(), &dm), "alloc_dm");
  const int resized = ibv_resize_cq(cq.get(), 8);
  require(resized == EOPNOTSUPP, "resize_cq gave {}", resized);
  for (const ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_RAW_PACKET}) {
    ibv_qp_init_attr init{};
    init.send_cq = cq.get();
    init.recv_cq = cq.get();
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = type;
    errno = 0;
    require_unsupported(ibv_create_qp(pd.get(), &init), "a QP of another type");
  }
}

constexpr std::array kCases = {
    Case{"limits", limits_hold},
    Case{"maximum-objects", maximum_can_be_created},
    Case{"in-use", in_use},
    Case{"unsupported", unsupported_verbs},
};

}  // namespace

std::span<const Case> limit_cases() {
  return kCases;
}

}  // namespace uroce::e2e
