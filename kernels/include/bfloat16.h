// bfloat16 as the upper half of a float; arithmetic is done in float.
#pragma once
#include <cstdint>
#include <cstring>

namespace fastweights {

struct bfloat16 {
  uint16_t bits;
};

}  // namespace fastweights
