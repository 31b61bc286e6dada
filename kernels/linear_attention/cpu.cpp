// Linear attention on CPUs: the delta rule's kernel without the error.
#include "call.h"
#include "delta_memory.h"

using namespace fastweights;
using R = Row<T, P>;

FW_EXPORT void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto qs = call.tensor<const T>(), ks = call.tensor<const T>(), vs = call.tensor<const T>();
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto ys = call.tensor<T>(), final = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    const int64_t K = size.keys, V = size.values;
    const auto q = qs.steps(b, h), k = ks.steps(b, h), v = vs.steps(b, h);
    const auto is_first = resets.steps(b);
    const auto y = ys.steps(b, h);
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, q, k, v, y);
    };
    prefetch_first(size.time, prefetch);
    auto& memory = workspace<DeltaMemory<T, P>>();
    memory.start(initial.at(b, h), initial.stride[2], K, V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch(t + kAhead);
      if (*is_first[t]) memory.forget();
      R answer = memory.add(R::load(q[t], K), R::load(k[t], K), R::load(v[t], V));
      answer.store(y[t], V);
    }
    memory.finish(final.at(b, h), final.stride[2]);
  });
}

FW_EXPORT void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto qs = call.tensor<const T>(), ks = call.tensor<const T>(), vs = call.tensor<const T>();
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto grad_ys = call.tensor<const T>(), grad_final = call.tensor<const T>();
  auto grad_qs = call.tensor<T>(), grad_ks = call.tensor<T>(), grad_vs = call.tensor<T>();
  auto grad_initial = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    const int64_t K = size.keys, V = size.values;
    const auto q = qs.steps(b, h), k = ks.steps(b, h), v = vs.steps(b, h);
    const auto is_first = resets.steps(b);
    const auto grad_y = grad_ys.steps(b, h);
    const auto grad_q = grad_qs.steps(b, h), grad_k = grad_ks.steps(b, h);
    const auto grad_v = grad_vs.steps(b, h);

    // Back in time: dk and dv.
    const auto prefetch_back = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, q, k, v, grad_y, grad_k, grad_v);
    };
    prefetch_last(size.time, prefetch_back);
    auto& gradient = workspace<MemoryGradient<T, P>>();
    gradient.start(grad_final.at_or_null(b, h), grad_final.stride[2], K, V);
    for (int64_t t = size.time - 1; t >= 0; t--) {
      prefetch_back(t - kAhead);
      R dk;
      const R dv = gradient.add(R::load(q[t], K), R::load(k[t], K), R::load(v[t], V),
                                R::load(grad_y[t], V), dk);
      dk.store(grad_k[t], K);
      dv.store(grad_v[t], V);
      if (*is_first[t]) gradient.forget();
    }
    gradient.finish(grad_initial.at(b, h), grad_initial.stride[2]);

    // Forward again: dq.
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, k, v, grad_y, grad_q);
    };
    prefetch_first(size.time, prefetch);
    auto& weights = workspace<MemoryReplay<T, P>>();
    weights.start(initial.at(b, h), initial.stride[2], K, V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch(t + kAhead);
      if (*is_first[t]) weights.forget();
      const R key = R::load(k[t], K), value = R::load(v[t], V), dy = R::load(grad_y[t], V);
      R dq;
      weights.template step<1>({{{dy.data(), &dq}}}, key, value);
      (dq + dot(value, dy) * key).store(grad_q[t], K);
    }
  });
}
