// Linear attention on CPUs: the delta rule's kernel without the error.
#include "call.h"
#include "delta_memory.h"

using namespace fastweights;
using R = Row<T, P>;

FW_EXPORT void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto q = call.tensor<const T>(), k = call.tensor<const T>(), v = call.tensor<const T>();
  auto is_first = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto y = call.tensor<T>(), final = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    auto& memory = workspace<DeltaMemory<T, P>>();
    memory.start(initial.at(b, h), initial.stride[2], size.keys, size.values);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch_rows(P, t + kAhead, b, h, q, k, v, y);
      if (*is_first.at(t, b)) memory.forget();
      R answer = memory.add(R::load(q.at(t, b, h), size.keys), R::load(k.at(t, b, h), size.keys),
                            R::load(v.at(t, b, h), size.values));
      answer.store(y.at(t, b, h), size.values);
    }
    memory.finish(final.at(b, h), final.stride[2]);
  });
}

FW_EXPORT void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto q = call.tensor<const T>(), k = call.tensor<const T>(), v = call.tensor<const T>();
  auto is_first = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), final = call.tensor<const T>();
  auto grad_y = call.tensor<const T>(), grad_final = call.tensor<const T>();
  auto grad_q = call.tensor<T>(), grad_k = call.tensor<T>(), grad_v = call.tensor<T>();
  auto grad_initial = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    auto first = [&](int64_t t) { return *is_first.at(t, b); };
    auto write_at = [&](int64_t t) {
      return Written<T, P>{R::load(k.at(t, b, h), size.keys), R::load(v.at(t, b, h), size.values)};
    };
    auto& adjoint = workspace<DeltaAdjoint<T, P>>();
    adjoint.start(final.at(b, h), final.stride[2], grad_final.at_or_null(b, h), grad_final.stride[2],
                  size.keys, size.values);
    for (int64_t t = size.time - 1; t >= 0; t--) {
      prefetch_rows(P, t - kAhead, b, h, q, k, v, grad_y, grad_q, grad_k, grad_v);
      auto [key, value] = write_at(t);
      auto grad = adjoint.add(R::load(q.at(t, b, h), size.keys), key, value,
                              R::load(grad_y.at(t, b, h), size.values));
      grad.q.store(grad_q.at(t, b, h), size.keys);
      grad.k.store(grad_k.at(t, b, h), size.keys);
      grad.v.store(grad_v.at(t, b, h), size.values);
      if (first(t)) adjoint.cross_reset(t, first, initial.at(b, h), initial.stride[2], write_at);
    }
    adjoint.finish(grad_initial.at(b, h), grad_initial.stride[2]);
  });
}
