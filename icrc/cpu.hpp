// Which instruction sets this CPU has and the operating system lets programs use.
#pragma once

namespace uroce::icrc {

bool cpu_has_pclmulqdq();   // PCLMULQDQ, SSE4.1, AVX
bool cpu_has_vpclmulqdq();  // VPCLMULQDQ, AVX-512 F, BW and VL, BMI2

}  // namespace uroce::icrc
