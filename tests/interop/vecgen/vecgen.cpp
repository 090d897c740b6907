// Every RC operation between two hosts in a fixed order, data and statuses checked on both sides.
//
//   vecgen s [options]              server
//   vecgen c [options] SERVER_IPV4  client: issues the operations, prints one line each
//     -d DEVICE  (the first)        -g GID_INDEX (1)      -m PATH_MTU (1024)
//     -p PORT of the side channel (7471)                  -t PARTS: rc, err (both), same on both
//
// Exits 1 on any surprise. Runs over any provider; the interop tests run it on both sides.
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/interop/vecgen/endpoint.hpp"

namespace uroce::tests {
namespace {

constexpr int kNever = -2;    // no completion came
constexpr int kRefused = -1;  // refused when posted
constexpr int kPatienceMs = 20000;
constexpr int kQuietMs = 300;
constexpr std::array<uint32_t, 8> kLengths{0, 1, 5, 1024, 1025, 4096, 4103, 12345};

int surprises = 0;

void expect(bool good, const char* what) {
  if (!good) {
    ++surprises;
    fmt::print("  WRONG: {}\n", what);
  }
}

unsigned char pattern(uint32_t at, uint32_t length) {
  return static_cast<unsigned char>(at * 7 + at / 251 + length);
}

void fill(unsigned char* bytes, uint32_t length) {
  for (uint32_t at = 0; at < length; ++at) {
    bytes[at] = pattern(at, length);
  }
}

bool is_filled(const unsigned char* bytes, uint32_t length) {
  for (uint32_t at = 0; at < length; ++at) {
    if (bytes[at] != pattern(at, length)) {
      return false;
    }
  }
  return true;
}

uint32_t immediate_for(uint32_t length) {
  return 0xdeadbe00 | (length & 0xff);
}

struct Remote {
  size_t offset = 0;
  uint32_t rkey = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
};

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// One operation of the client to its completion. Returns its status, kRefused or kNever.
int run(Endpoint& end, ibv_qp* qp, const char* name, ibv_wr_opcode opcode, uint32_t length,
        const Remote& remote = {}) {
  if (opcode == IBV_WR_RDMA_READ) {
    std::memset(end.memory(0), 0xcc, length);
  } else {
    fill(end.memory(0), length);
  }
  ibv_sge sge{reinterpret_cast<uintptr_t>(end.memory(0)), length, end.lkey()};
  ibv_send_wr request{};
  request.opcode = opcode;
  request.sg_list = &sge;
  request.num_sge = length > 0 ? 1 : 0;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = htonl(immediate_for(length));
  const uint64_t address = end.peer().address + remote.offset;
  if (is_atomic(opcode)) {
    request.wr.atomic.remote_addr = address;
    request.wr.atomic.rkey = remote.rkey;
    request.wr.atomic.compare_add = remote.compare_add;
    request.wr.atomic.swap = remote.swap;
  } else {
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = remote.rkey;
  }
  int status = kRefused;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp, &request, &bad) == 0) {
    const auto completion = end.wait_completion(kPatienceMs);
    status = completion ? static_cast<int>(completion->status) : kNever;
  }
  fmt::print("{:<26} {:>5} bytes: {}\n", name, length,
             status == kRefused ? "refused when posted"
             : status == kNever ? "NO COMPLETION"
                                : ibv_wc_status_str(static_cast<ibv_wc_status>(status)));
  return status;
}

void succeed(Endpoint& end, ibv_qp* qp, const char* name, ibv_wr_opcode opcode, uint32_t length,
             const Remote& remote = {}) {
  expect(run(end, qp, name, opcode, length, remote) == IBV_WC_SUCCESS, "status");
}

void expect_original(Endpoint& end, ibv_qp* qp, const char* name, ibv_wr_opcode opcode,
                     const Remote& remote, uint64_t original) {
  succeed(end, qp, name, opcode, sizeof original, remote);
  uint64_t found = 0;
  std::memcpy(&found, end.memory(0), sizeof found);
  expect(found == original, "original value");
}

// Takes completions until none comes for a while. In the server, each message received must carry
// the pattern of its length. Returns how many came.
int take_completions(Endpoint& end, int quiet_ms) {
  int count = 0;
  while (const auto completion = end.wait_completion(quiet_ms)) {
    if (end.client()) {
      continue;
    }
    ++count;
    const bool has_immediate = (completion->wc_flags & IBV_WC_WITH_IMM) != 0;
    const uint32_t length = completion->byte_len;
    fmt::print("  received: operation {}, {}, {} bytes\n", static_cast<int>(completion->opcode),
               ibv_wc_status_str(completion->status), length);
    if (completion->status != IBV_WC_SUCCESS || (completion->opcode & IBV_WC_RECV) == 0) {
      continue;
    }
    if (completion->opcode == IBV_WC_RECV) {
      expect(is_filled(end.memory(kReceiveAt + completion->wr_id * kSlotSize), length),
             "received data");
    }
    if (has_immediate) {
      expect(ntohl(completion->imm_data) == immediate_for(length), "immediate data");
    }
  }
  return count;
}

void request_everything(Endpoint& end, ibv_qp* qp) {
  const Remote there{kRemoteAt, end.peer().rkey, 0, 0};
  const auto read_back = [&](uint32_t length) {
    succeed(end, qp, "READ", IBV_WR_RDMA_READ, length, there);
    expect(is_filled(end.memory(0), length), "data read back");
  };
  for (const uint32_t length : kLengths) {
    succeed(end, qp, "SEND", IBV_WR_SEND, length);
  }
  succeed(end, qp, "SEND with immediate", IBV_WR_SEND_WITH_IMM, 33);
  succeed(end, qp, "SEND with immediate", IBV_WR_SEND_WITH_IMM, 2050);
  for (const uint32_t length : kLengths) {
    succeed(end, qp, "WRITE", IBV_WR_RDMA_WRITE, length, there);
    read_back(length);
  }
  succeed(end, qp, "WRITE with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, 8, there);
  read_back(8);
  succeed(end, qp, "WRITE with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, 2500, there);
  read_back(2500);

  constexpr uint64_t kSwapped = 0x1122334455667788;
  const auto at = [&](uint64_t compare_add, uint64_t swap) {
    return Remote{kAtomicAt, end.peer().rkey, compare_add, swap};
  };
  expect_original(end, qp, "CMP_AND_SWP, differs", IBV_WR_ATOMIC_CMP_AND_SWP, at(1, 2), 0);
  expect_original(end, qp, "CMP_AND_SWP, equal", IBV_WR_ATOMIC_CMP_AND_SWP, at(0, kSwapped), 0);
  expect_original(end, qp, "FETCH_AND_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, at(0x1111, 0), kSwapped);
  expect_original(end, qp, "FETCH_AND_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, at(1, 0),
                  kSwapped + 0x1111);
}

void part_rc(Endpoint& end, SideChannel& channel) {
  constexpr int kReceived = 12;  // eight SENDs, two with immediate, two WRITEs with immediate
  ibv_qp* const qp = end.connect(7);
  if (!end.client()) {
    end.post_receives(qp, kReceived, kSlotSize);
    std::memset(end.memory(kAtomicAt), 0, 8);
  }
  channel.meet();
  if (end.client()) {
    request_everything(end, qp);
  }
  channel.meet();
  const int received = take_completions(end, kQuietMs);
  expect(end.client() || received == kReceived, "12 receive completions");
  channel.meet();
  ibv_destroy_qp(qp);
}

// What goes wrong, each on a queue pair of its own, because an error ends it.
struct Fault {
  const char* name;
  ibv_wr_opcode opcode;
  uint32_t length;
  size_t offset;
  uint32_t key_flip;         // xored into the R_Key
  uint32_t receive_length;   // 0: none is posted before the request comes
  bool receive_comes_later;  // after the first RNR NAK
  std::array<int, 2> allowed;
};

constexpr Fault kFaults[] = {
    {"WRITE, bad R_Key",
     IBV_WR_RDMA_WRITE,
     64,
     0,
     0x5500,
     0,
     false,
     {IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR}},
    {"READ, out of range",
     IBV_WR_RDMA_READ,
     128,
     kBufferSize - 64,
     0,
     0,
     false,
     {IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR}},
    {"CMP_AND_SWP, misaligned",
     IBV_WR_ATOMIC_CMP_AND_SWP,
     8,
     kAtomicAt + 2,
     0,
     0,
     false,
     {kRefused, IBV_WC_REM_INV_REQ_ERR}},
    // rdma_rxe answers with a remote operational error where the specification has invalid request.
    {"SEND, receive too small",
     IBV_WR_SEND,
     64,
     0,
     0,
     16,
     false,
     {IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR}},
    {"SEND, no receive",
     IBV_WR_SEND,
     64,
     0,
     0,
     0,
     false,
     {IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR}},
    {"SEND, receive comes later", IBV_WR_SEND, 64, 0, 0, 0, true, {IBV_WC_SUCCESS, IBV_WC_SUCCESS}},
};

void part_err(Endpoint& end, SideChannel& channel) {
  constexpr uint8_t kFewRnrRetries = 3;
  constexpr uint8_t kEndlessRnrRetries = 7;
  constexpr int kShortQuietMs = 100;
  for (const Fault& fault : kFaults) {
    ibv_qp* const qp = end.connect(fault.receive_comes_later ? kEndlessRnrRetries : kFewRnrRetries);
    if (!end.client() && fault.receive_length > 0) {
      end.post_receives(qp, 1, fault.receive_length);
    }
    channel.meet();
    if (end.client()) {
      const Remote there{fault.offset, end.peer().rkey ^ fault.key_flip, 0, 0};
      const int status = run(end, qp, fault.name, fault.opcode, fault.length, there);
      expect(status == fault.allowed[0] || status == fault.allowed[1], "status");
    } else if (fault.receive_comes_later) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      end.post_receives(qp, 1, fault.length);
    }
    channel.meet();
    take_completions(end, kShortQuietMs);
    channel.meet();
    ibv_destroy_qp(qp);
  }
}

Settings parse(int argc, char** argv) {
  Settings settings;
  const std::string role = argc > 1 ? argv[1] : "";
  if (role != "s" && role != "c") {
    throw std::runtime_error("usage: vecgen s|c [options] [SERVER]");
  }
  settings.client = role == "c";
  optind = 2;
  for (int option = 0; (option = getopt(argc, argv, "d:g:m:p:t:")) != -1;) {
    switch (option) {
      case 'd':
        settings.device = optarg;
        break;
      case 'g':
        settings.gid_index = std::atoi(optarg);
        break;
      case 'm':
        settings.path_mtu = std::atoi(optarg);
        break;
      case 'p':
        settings.port = static_cast<uint16_t>(std::atoi(optarg));
        break;
      case 't':
        settings.parts = optarg;
        break;
      default:
        throw std::runtime_error("unknown option");
    }
  }
  if (settings.client && optind >= argc) {
    throw std::runtime_error("client: which server?");
  }
  settings.server = settings.client ? argv[optind] : "";
  return settings;
}

bool has_part(const Settings& settings, const char* part) {
  return ("," + settings.parts + ",").find("," + std::string(part) + ",") != std::string::npos;
}

int main_of(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  SideChannel channel = settings.client ? SideChannel::connect_to(settings.server, settings.port)
                                        : SideChannel::accept_on(settings.port);
  Endpoint end(settings, channel);
  if (has_part(settings, "rc")) {
    part_rc(end, channel);
  }
  if (has_part(settings, "err")) {
    part_err(end, channel);
  }
  fmt::print("vecgen {}: {}, {} wrong\n", settings.client ? "client" : "server", settings.parts,
             surprises);
  return surprises == 0 ? 0 : 1;
}

}  // namespace
}  // namespace uroce::tests

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    return uroce::tests::main_of(argc, argv);
  } catch (const std::exception& problem) {
    fmt::print("vecgen: {}\n", problem.what());
    return 1;
  }
}
