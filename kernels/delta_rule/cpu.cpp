// The delta rule on CPUs: one thread a (batch, head) pair, its matrices in the first-level cache.
#include "call.h"
#include "delta_memory.h"

using namespace fastweights;
using R = Row<T, P>;

FW_EXPORT void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto q = call.tensor<const T>(), k = call.tensor<const T>(), v = call.tensor<const T>();
  auto beta = call.tensor<const T>();
  auto is_first = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto y = call.tensor<T>(), final = call.tensor<T>();
  auto saved_error = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    auto& memory = workspace<DeltaMemory<T, P>>();
    memory.start(initial.at(b, h), initial.stride[2], size.keys, size.values);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch_rows(P, t + kAhead, b, h, q, k, v, y, saved_error);
      if (*is_first.at(t, b)) memory.forget();
      R error;
      R answer = memory.step(R::load(q.at(t, b, h), size.keys), R::load(k.at(t, b, h), size.keys),
                             R::load(v.at(t, b, h), size.values), *beta.at(t, b, h), error);
      answer.store(y.at(t, b, h), size.values);
      if (saved_error) error.store(saved_error.at(t, b, h), size.values);
    }
    memory.finish(final.at(b, h), final.stride[2]);
  });
}

FW_EXPORT void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto q = call.tensor<const T>(), k = call.tensor<const T>();
  call.tensor<const T>();  // v: the error already holds it
  auto beta = call.tensor<const T>();
  auto is_first = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto error = call.tensor<const T>(), final = call.tensor<const T>();
  auto grad_y = call.tensor<const T>(), grad_final = call.tensor<const T>();
  auto grad_q = call.tensor<T>(), grad_k = call.tensor<T>(), grad_v = call.tensor<T>();
  auto grad_beta = call.tensor<T>(), grad_initial = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    auto first = [&](int64_t t) { return *is_first.at(t, b); };
    auto write_at = [&](int64_t t) {
      return Written<T, P>{R::load(k.at(t, b, h), size.keys),
                           *beta.at(t, b, h) * R::load(error.at(t, b, h), size.values)};
    };
    auto& adjoint = workspace<DeltaAdjoint<T, P>>();
    adjoint.start(final.at(b, h), final.stride[2], grad_final.at_or_null(b, h), grad_final.stride[2],
                  size.keys, size.values);
    for (int64_t t = size.time - 1; t >= 0; t--) {
      prefetch_rows(P, t - kAhead, b, h, q, k, error, grad_y, grad_q, grad_k, grad_v);
      auto grad = adjoint.step(R::load(q.at(t, b, h), size.keys), R::load(k.at(t, b, h), size.keys),
                               R::load(error.at(t, b, h), size.values), *beta.at(t, b, h),
                               R::load(grad_y.at(t, b, h), size.values));
      grad.q.store(grad_q.at(t, b, h), size.keys);
      grad.k.store(grad_k.at(t, b, h), size.keys);
      grad.v.store(grad_v.at(t, b, h), size.values);
      *grad_beta.at(t, b, h) = grad.beta;
      if (first(t)) adjoint.cross_reset(t, first, initial.at(b, h), initial.stride[2], write_at);
    }
    adjoint.finish(grad_initial.at(b, h), grad_initial.stride[2]);
  });
}
