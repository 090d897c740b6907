// Which instruction sets this CPU has and the operating system lets programs use.
#pragma once

namespace uroce::icrc {

bool cpu_has_pclmulqdq();   // PCLMULQDQ, SSSE3, SSE4.1
bool cpu_has_vpclmulqdq();  // VPCLMULQDQ, AVX-512 F, BW, VL, and 512-bit state kept over switches

}  // namespace uroce::icrc
