// The constants by which the device introduces itself: to verbs and in the device directory.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace uroce::provider {

inline constexpr const char* kFirmwareVersion = "0.1.0";
inline constexpr const char* kBoardId = "UROCE000001";
// A locally administered OUI. perftest, UCX and libfabric know vendors whose hardware has quirks;
// this is none of them.
inline constexpr uint32_t kVendorId = 0x02524f;
inline constexpr uint32_t kVendorPartId = 1;
inline constexpr int kMaxAddressHandles = 1 << 20;
inline constexpr uint8_t kLocalAckDelay = 15;  // 4.096 us << 15 = 134 ms: a thread's worst delay
inline constexpr uint32_t kPortCapabilities = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
inline constexpr uint8_t kActiveWidth = 2;                   // 4 lanes…
inline constexpr uint8_t kActiveSpeed = 32;                  // …of 25 Gbit/s (EDR)
inline constexpr const char* kRate = "100 Gb/sec (4X EDR)";  // the same, as sysfs writes it
inline constexpr uint8_t kPhysicalDisabled = 3;              // IBTA PortPhysicalState
inline constexpr uint8_t kPhysicalLinkUp = 5;

}  // namespace uroce::provider
