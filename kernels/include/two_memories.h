// Parts of a recurrence with two delta memories: each memory with the rows that it reads and
// writes. The second memory's query is the previous output.
#pragma once
#include "call.h"
#include "delta_memory.h"

namespace fastweights {

// The inputs of a memory's writes at each step, for one head or one gate of a head (E = const T),
// or their gradients (E = T).
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

// A memory in the forward pass; the errors of its writes are saved for the backward pass.
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

// A memory in the backward pass.
struct BackwardMemory : DeltaAdjoint<T, P> {
  using R = Row<T, P>;
  WriteSteps<const T> in;
  Steps<const T> errors;
  WriteSteps<T> grads;

  // Row t's write.
  FW_INLINE Written<T, P> written(int64_t t) const {
    return {R::load(in.k[t], keys), *in.beta[t] * R::load(errors[t], values)};
  }

  auto write_at() const {
    return [this](int64_t t) { return written(t); };
  }

  // `in`, `errors` and `grads` must be set beforehand.
  void start(int64_t time, const T* final_weights, int64_t row_stride, const T* final_grad,
             int64_t grad_stride, int64_t key_size, int64_t value_size,
             const Beginnings<T>& beginnings, bool again) {
    DeltaAdjoint<T, P>::start(time, final_weights, row_stride, final_grad, grad_stride, key_size,
                              value_size, beginnings, again, write_at());
  }

  // Stores the gradients of the write's inputs, and returns the query's gradient.
  FW_INLINE R step(int64_t t, const R& q, const R& dy) {
    auto grad = DeltaAdjoint<T, P>::step(t, q, R::load(in.k[t], keys), R::load(errors[t], values),
                                         *in.beta[t], dy, write_at());
    grad.k.store(grads.k[t], keys);
    grad.v.store(grads.v[t], values);
    *grads.beta[t] = grad.beta;
    return grad.q;
  }

  void arrive(int64_t t) {
    DeltaAdjoint<T, P>::arrive(t, R::load(in.k[t], keys), R::load(errors[t], values));
  }
  void cross_reset(int64_t t) { DeltaAdjoint<T, P>::cross_reset(t, write_at()); }
};

}  // namespace fastweights
