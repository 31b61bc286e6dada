// What a law with two delta memories reads at every step: inputs for each, the second one's query
// being the previous output.
#pragma once
#include "call.h"
#include "delta_memory.h"

namespace fastweights {

struct Inputs {
  Tensor<const T> q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;

  explicit Inputs(Call& call)
      : q(call.tensor<const T>()), k(call.tensor<const T>()), v(call.tensor<const T>()),
        beta(call.tensor<const T>()), recurrent_k(call.tensor<const T>()),
        recurrent_v(call.tensor<const T>()), recurrent_beta(call.tensor<const T>()) {}
};

}  // namespace fastweights
