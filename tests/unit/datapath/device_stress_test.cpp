// The progress engine under load: two devices of one process, threads that post, poll, wait and
// create at once. Run under TSan by check.sh.
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "datapath/device.hpp"
#include "tests/catch.hpp"

using namespace uroce;
using namespace uroce::datapath;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kDepth = 32;
constexpr uint32_t kMessageBytes = 9000;  // three packets of 4096
constexpr uint32_t kMessages = 2000;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/uroce-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One side of a connection: device, queue pair, one completion queue each way, and its buffer.
struct Side {
  std::shared_ptr<OpenDevice> device;
  PdId pd;
  transport::CompletionQueue* send_cq = nullptr;
  transport::CompletionQueue* recv_cq = nullptr;
  transport::QueuePair* qp = nullptr;
  std::vector<std::byte> buffer = std::vector<std::byte>(size_t{kDepth} * kMessageBytes);
  Lkey key;

  explicit Side(const Config& config, const char* name) {
    auto opened = OpenDevice::open(config, name);
    REQUIRE(opened.ok());
    device = *opened;
    pd = *device->create_pd();
    key.value = *device->register_region(
        {pd, buffer.data(), buffer.size(), reinterpret_cast<uint64_t>(buffer.data()),
         transport::kLocalWrite | transport::kRemoteWrite | transport::kRemoteRead});
    send_cq = *device->create_cq(kDepth * 2, nullptr);
    recv_cq = *device->create_cq(kDepth * 2, nullptr);
    transport::QpInitAttributes init;
    init.pd = pd;
    init.send_cq = send_cq;
    init.recv_cq = recv_cq;
    init.capabilities = {kDepth, kDepth, 1, 1, 0};
    init.signal_all = true;
    auto made = device->create_qp(init);
    REQUIRE(made.ok());
    qp = *made;
  }

  ~Side() {
    CHECK(device->destroy_qp(*qp).ok());
    CHECK(device->destroy_cq(*send_cq).ok());
    CHECK(device->destroy_cq(*recv_cq).ok());
    CHECK(device->deregister_region(key).ok());
    CHECK(device->destroy_pd(pd).ok());
  }

  Gid gid() const { return device->description().gids[1].gid; }

  transport::Sge slot(uint32_t index) const {
    const auto* at = buffer.data() + size_t{index % kDepth} * kMessageBytes;
    return {reinterpret_cast<uint64_t>(at), kMessageBytes, key};
  }
};

void connect(Side& self, const Side& peer) {
  transport::QpAttributes a;
  a.state = transport::QpState::kInit;
  a.access = transport::kRemoteWrite | transport::kRemoteRead;
  REQUIRE(self.device
              ->modify_qp(*self.qp, a,
                          transport::kQpState | transport::kQpPkeyIndex | transport::kQpPort |
                              transport::kQpAccessFlags)
              .ok());
  a.state = transport::QpState::kRtr;
  a.path_mtu = Mtu::k4096;
  a.destination_qpn = peer.qp->qpn();
  a.rq_psn = Psn(0xfffff0);
  a.max_dest_rd_atomic = 4;
  a.min_rnr_timer = 1;
  a.address.source_gid = self.gid();
  a.address.source_gid_index = 1;
  a.address.destination_gid = peer.gid();
  const auto to_rtr = self.device->modify_qp(
      *self.qp, a,
      transport::kQpState | transport::kQpAv | transport::kQpPathMtu | transport::kQpDestQpn |
          transport::kQpRqPsn | transport::kQpMaxDestRdAtomic | transport::kQpMinRnrTimer);
  if (!to_rtr) FAIL(to_rtr.refusal().why);
  a.state = transport::QpState::kRts;
  a.sq_psn = Psn(0xfffff0);
  a.ack_timeout = 14;
  a.retry_count = 7;
  a.rnr_retry = 7;
  a.max_rd_atomic = 4;
  REQUIRE(self.device
              ->modify_qp(*self.qp, a,
                          transport::kQpState | transport::kQpSqPsn | transport::kQpTimeout |
                              transport::kQpRetryCnt | transport::kQpRnrRetry |
                              transport::kQpMaxRdAtomic)
              .ok());
}

bool take_one(OpenDevice& device, transport::CompletionQueue& cq, bool may_wait_idly,
              transport::Completion& out) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (cq.poll({&out, 1}) == 0) {
    if (may_wait_idly) {
      std::this_thread::sleep_for(20us);  // the background thread must move things
    } else {
      device.progress();
    }
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
  return true;
}

std::byte pattern(uint32_t message, size_t at) {
  return static_cast<std::byte>(message * 31 + at);
}

void send_all(Side& side, std::atomic<uint32_t>& failures) {
  uint32_t posted = 0;
  for (uint32_t done = 0; done < kMessages;) {
    for (; posted < kMessages && posted - done < kDepth; ++posted) {
      const transport::Sge sge = side.slot(posted);
      auto* bytes = reinterpret_cast<std::byte*>(sge.address);
      for (size_t i = 0; i < kMessageBytes; i += 97) bytes[i] = pattern(posted, i);
      transport::SendRequest request;
      request.wr_id = posted;
      request.sges = {&sge, 1};
      if (side.qp->post_send(request) != transport::PostError::kNone) ++failures;
      side.device->ring(*side.qp);
    }
    transport::Completion wc;
    if (!take_one(*side.device, *side.send_cq, false, wc) || wc.wr_id != done ||
        wc.status != transport::CompletionStatus::kSuccess) {
      ++failures;
      return;
    }
    ++done;
  }
}

void post_receive(Side& side, uint32_t index, std::atomic<uint32_t>& failures) {
  const transport::Sge sge = side.slot(index);
  if (side.qp->post_recv({index, {&sge, 1}}) != transport::PostError::kNone) ++failures;
  side.device->ring(*side.qp);
}

void receive_all(Side& side, bool idly, std::atomic<uint32_t>& failures) {
  for (uint32_t done = 0; done < kMessages; ++done) {
    transport::Completion wc;
    if (!take_one(*side.device, *side.recv_cq, idly, wc) || wc.wr_id != done ||
        wc.status != transport::CompletionStatus::kSuccess || wc.byte_length != kMessageBytes) {
      ++failures;
      return;
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(side.slot(done).address);
    for (size_t i = 0; i < kMessageBytes; i += 97) {
      if (bytes[i] != pattern(done, i)) ++failures;
    }
    if (done + kDepth < kMessages) post_receive(side, done + kDepth, failures);
  }
}

void create_and_destroy(OpenDevice& device, const std::atomic<bool>& stop,
                        std::atomic<uint32_t>& failures) {
  std::vector<std::byte> buffer(4096);
  while (!stop.load()) {
    auto pd = device.create_pd();
    auto cq = device.create_cq(16, nullptr);
    if (!pd || !cq) {
      ++failures;
      return;
    }
    auto key =
        device.register_region({*pd, buffer.data(), buffer.size(),
                                reinterpret_cast<uint64_t>(buffer.data()), transport::kLocalWrite});
    transport::QpInitAttributes init;
    init.pd = *pd;
    init.send_cq = init.recv_cq = *cq;
    init.capabilities = {4, 4, 1, 1, 0};
    auto qp = device.create_qp(init);
    if (!qp || !key || device.destroy_pd(*pd) || device.destroy_cq(**cq)) ++failures;
    if (qp && !device.destroy_qp(**qp)) ++failures;
    if (key && !device.deregister_region({*key})) ++failures;
    if (!device.destroy_cq(**cq) || !device.destroy_pd(*pd)) ++failures;
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("Threads post, poll, sleep and create at once, and every byte arrives in order") {
  const TemporaryDirectory directory;
  Config config;
  config.run_directory = directory.path();
  config.fabric = "stress";
  const bool idle_receiver = GENERATE(false, true);
  Side a(config, "uroce0");
  Side b(config, "uroce1");
  connect(a, b);
  connect(b, a);
  std::atomic<uint32_t> failures{0};
  for (uint32_t i = 0; i < kDepth; ++i) {
    post_receive(b, i, failures);
  }
  std::atomic<bool> stop{false};
  std::thread sender([&] { send_all(a, failures); });
  std::thread receiver([&] { receive_all(b, idle_receiver, failures); });
  std::thread creator([&] { create_and_destroy(*a.device, stop, failures); });
  sender.join();
  receiver.join();
  stop = true;
  creator.join();
  CHECK(failures == 0);
}
