// Finds the driver's socket among this process's descriptors, and sets it up.
#include "datapath/ethdev/packet_socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <string>

#include "datapath/frame.hpp"

namespace uroce::datapath {
namespace {

bool is_packet_socket(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_PACKET;
}

bool is_bound_to(int fd, int ifindex) {
  sockaddr_ll address{};
  socklen_t size = sizeof(address);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
         address.sll_ifindex == ifindex;
}

std::map<uint64_t, int> packet_sockets_by_inode() {
  std::map<uint64_t, int> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    struct stat status {};
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    if (is_packet_socket(fd)) found.emplace(status.st_ino, fd);
  }
  return found;
}

}  // namespace

std::set<uint64_t> open_packet_sockets() {
  std::set<uint64_t> inodes;
  for (const auto& [inode, fd] : packet_sockets_by_inode()) inodes.insert(inode);
  return inodes;
}

std::optional<PacketSocket> PacketSocket::find(const Interface& interface,
                                               const std::set<uint64_t>& earlier) {
  for (const auto& [inode, fd] : packet_sockets_by_inode()) {
    if (!earlier.contains(inode) && is_bound_to(fd, interface.index)) return PacketSocket(fd);
  }
  return std::nullopt;
}

void PacketSocket::keep_to_roce() const {
  constexpr uint16_t kIp = kEthernetBytes;
  constexpr auto kDrop = static_cast<uint8_t>(14);  // index of the last but one instruction
  // Jumps skip that many instructions when true, when false.
  std::array<sock_filter, 16> program = {{
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_PKTTYPE)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, kDrop - 2, 0),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, kDrop - 5),
      // IPv4: UDP, any header length.
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIp + 9),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, kDrop - 7),
      BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, kIp),
      BPF_STMT(BPF_LD | BPF_H | BPF_IND, kIp + 2),
      BPF_STMT(BPF_JMP | BPF_JA, 3),
      // IPv6: UDP without extension headers.
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIp + 6),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, kDrop - 12),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kIp + 40 + 2),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRoceUdpPort, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, 0),
      BPF_STMT(BPF_RET | BPF_K, 0x40000),
  }};
  const sock_fprog filter = {program.size(), program.data()};
  setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
  fcntl(fd_, F_SETFD, FD_CLOEXEC);
}

void PacketSocket::clear_error() const {
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
}

uint64_t PacketSocket::take_drops() const {
  tpacket_stats statistics{};
  socklen_t size = sizeof(statistics);
  if (getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &statistics, &size) != 0) return 0;
  return statistics.tp_drops;
}

}  // namespace uroce::datapath
