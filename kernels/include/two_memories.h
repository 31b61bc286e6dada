// What a law with two delta memories is made of: each memory with the rows that it reads and writes,
// the second one's query being the previous output.
#pragma once
#include "call.h"
#include "delta_memory.h"

namespace fastweights {

// What a memory is written with at each step, of one head or of one gate of a head (E = const T), or
// the gradients of that (E = T).
template <class E>
struct WriteSteps {
  Steps<E> k, v, beta;
};

// The inputs of both memories, or their gradients.
template <class E>
struct Inputs {
  Tensor<E> q, k, v, beta, recurrent_k, recurrent_v, recurrent_beta;

  explicit Inputs(Call& call)
      : q(call.tensor<E>()), k(call.tensor<E>()), v(call.tensor<E>()), beta(call.tensor<E>()),
        recurrent_k(call.tensor<E>()), recurrent_v(call.tensor<E>()),
        recurrent_beta(call.tensor<E>()) {}

  template <class... Index>
  WriteSteps<E> writes(Index... index) const {
    return {k.steps(index...), v.steps(index...), beta.steps(index...)};
  }

  template <class... Index>
  WriteSteps<E> recurrent_writes(Index... index) const {
    return {recurrent_k.steps(index...), recurrent_v.steps(index...),
            recurrent_beta.steps(index...)};
  }
};

// A memory on its way forward; the errors of its writes are kept for the way back.
struct ForwardMemory : DeltaMemory<T, P> {
  using R = Row<T, P>;
  WriteSteps<const T> in;
  Steps<T> errors;

  FW_INLINE R step(int64_t t, const R& q) {
    R error, answer = DeltaMemory<T, P>::step(q, R::load(in.k[t], rows), R::load(in.v[t], lanes),
                                              *in.beta[t], error);
    if (errors) error.store(errors[t], lanes);
    return answer;
  }
};

// A memory on its way back in time.
struct BackwardMemory : DeltaAdjoint<T, P> {
  using R = Row<T, P>;
  WriteSteps<const T> in;
  Steps<const T> errors;
  WriteSteps<T> grads;

  // Stores the gradients of what was written, and returns the query's.
  FW_INLINE R step(int64_t t, const R& q, const R& dy) {
    auto grad = DeltaAdjoint<T, P>::step(q, R::load(in.k[t], keys), R::load(errors[t], values),
                                         *in.beta[t], dy);
    grad.k.store(grads.k[t], keys);
    grad.v.store(grads.v[t], values);
    *grads.beta[t] = grad.beta;
    return grad.q;
  }

  void cross_reset(int64_t t, Steps<const bool> is_first, const T* initial, int64_t row_stride) {
    DeltaAdjoint<T, P>::cross_reset(t, is_first, initial, row_stride, [&](int64_t r) {
      return Written<T, P>{R::load(in.k[r], keys), *in.beta[r] * R::load(errors[r], values)};
    });
  }
};

}  // namespace fastweights
