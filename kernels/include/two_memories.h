// What a law with two delta memories reads at every step: inputs for each, the second one's query
// being the previous output.
#pragma once
#include "call.h"
#include "delta_memory.h"

namespace fastweights {

// Of one head, or of one gate of a head.
template <class E>
struct InputSteps {
  Steps<E> q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;
};

// The inputs (E = const T), or their gradients (E = T).
template <class E>
struct Inputs {
  Tensor<E> q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;

  explicit Inputs(Call& call)
      : q(call.tensor<E>()), k(call.tensor<E>()), v(call.tensor<E>()), beta(call.tensor<E>()),
        recurrent_k(call.tensor<E>()), recurrent_v(call.tensor<E>()),
        recurrent_beta(call.tensor<E>()) {}

  template <class... Index>
  InputSteps<E> steps(Index... index) const {
    return {q.steps(index...),          k.steps(index...),
            v.steps(index...),          beta.steps(index...),
            recurrent_k.steps(index...), recurrent_v.steps(index...),
            recurrent_beta.steps(index...)};
  }
};

}  // namespace fastweights
