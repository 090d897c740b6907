// An open device for tests of the verbs, on a fabric of this process's own.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "provider/devices.hpp"
#include "provider/verbs.hpp"
#include "tests/catch.hpp"

namespace uroce::provider {

// Deleters, so that a test's objects go in reverse order of their making.
struct Destroy {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
  void operator()(ibv_pd* pd) const { CHECK(ibv_dealloc_pd(pd) == 0); }
  void operator()(ibv_mr* mr) const { CHECK(ibv_dereg_mr(mr) == 0); }
  void operator()(ibv_cq* cq) const { CHECK(ibv_destroy_cq(cq) == 0); }
  void operator()(ibv_qp* qp) const { CHECK(ibv_destroy_qp(qp) == 0); }
  void operator()(ibv_ah* ah) const { CHECK(ibv_destroy_ah(ah) == 0); }
  void operator()(ibv_comp_channel* channel) const { CHECK(destroy_comp_channel(channel) == 0); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

// The devices of the test's fabric; the run directory is made once and removed at exit.
std::vector<ibv_device*> test_devices();

// Context, domain and defaults of most tests.
struct Session {
  Session();

  Owned<ibv_cq> make_cq(int entries, ibv_comp_channel* channel = nullptr) const;
  Owned<ibv_comp_channel> make_channel() const;
  // An RC queue pair in RESET with room for 8 and 8 requests of up to 2 SGEs.
  Owned<ibv_qp> make_qp(ibv_cq* cq) const;
  Owned<ibv_mr> register_all(std::vector<std::byte>& memory, int access) const;

  Owned<ibv_context> context;
  Owned<ibv_pd> pd;
};

ibv_qp_init_attr rc_attributes(ibv_cq* cq);
int to_init(ibv_qp* qp);
// RESET to RTS, toward `peer` of the same process.
void connect(ibv_qp* qp, const ibv_qp* peer);
int to_error(ibv_qp* qp);

// Polls until `count` completions came or five seconds have passed.
std::vector<ibv_wc> poll_for(ibv_cq* cq, size_t count);

}  // namespace uroce::provider
