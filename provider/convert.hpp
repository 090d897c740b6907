// Between the values of <infiniband/verbs.h> and transport's. Enumerations convert by cast:
// convert.cpp asserts that their values are equal.
#pragma once

#include <infiniband/verbs.h>

#include "datapath/device.hpp"
#include "transport/result.hpp"
#include "transport/verbs.hpp"

namespace uroce::provider {

ibv_mtu to_verbs(Mtu mtu);
// EINVAL: not one of the five.
Result<Mtu> mtu_from_verbs(ibv_mtu mtu);

// EINVAL: no GRH (RoCE addresses by GID), a port that is not 1, a source GID index beyond the table
// or empty, no destination.
Result<transport::AddressVector> address_from_verbs(const ibv_ah_attr& attributes,
                                                    const datapath::DeviceDescription& device);
ibv_ah_attr to_verbs(const transport::AddressVector& address);

// EINVAL: attributes that the mask names and no port, P_Key table or path MTU has.
Result<transport::QpAttributes> qp_attributes_from_verbs(const ibv_qp_attr& attributes,
                                                         transport::QpAttributeMask mask,
                                                         const datapath::DeviceDescription& device);
ibv_qp_attr to_verbs(const transport::QpAttributes& attributes);

ibv_qp_cap to_verbs(const transport::QpCapabilities& capabilities);
transport::QpCapabilities capabilities_from_verbs(const ibv_qp_cap& capabilities);

void to_verbs(const transport::Completion& completion, ibv_wc& out);

// The errno value of a refused post; 0 for kNone.
int errno_of(transport::PostError error);

}  // namespace uroce::provider
