// The gated delta rule on CPUs.
#include "one_memory.h"

using namespace fastweights;
using Kernel = OneMemory<Rule::kDelta, Memory::kFades>;

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Kernel::forward(layout, addresses);
}

FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Kernel::backward(layout, addresses);
}
