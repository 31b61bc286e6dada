// The delta rule on CPUs: one thread a (batch, head) pair, its matrices in the first-level cache.
#include "call.h"
#include "delta_memory.h"

using namespace fastweights;
using R = Row<T, P>;

FW_EXPORT void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto qs = call.tensor<const T>(), ks = call.tensor<const T>(), vs = call.tensor<const T>();
  auto betas = call.tensor<const T>();
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto ys = call.tensor<T>(), final = call.tensor<T>();
  auto errors = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    const int64_t K = size.keys, V = size.values;
    const auto q = qs.steps(b, h), k = ks.steps(b, h), v = vs.steps(b, h), beta = betas.steps(b, h);
    const auto is_first = resets.steps(b);
    const auto y = ys.steps(b, h), saved_error = errors.steps(b, h);
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, q, k, v, y, saved_error);
    };
    prefetch_first(size.time, prefetch);
    auto& memory = workspace<DeltaMemory<T, P>>();
    memory.start(initial.at(b, h), initial.stride[2], K, V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch(t + kAhead);
      if (*is_first[t]) memory.forget();
      R error;
      R answer = memory.step(R::load(q[t], K), R::load(k[t], K), R::load(v[t], V), *beta[t], error);
      answer.store(y[t], V);
      if (saved_error) error.store(saved_error[t], V);
    }
    memory.finish(final.at(b, h), final.stride[2]);
  });
}

FW_EXPORT void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto qs = call.tensor<const T>(), ks = call.tensor<const T>();
  call.tensor<const T>();  // v: the error already holds it
  auto betas = call.tensor<const T>();
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto errors = call.tensor<const T>();
  auto grad_ys = call.tensor<const T>(), grad_final = call.tensor<const T>();
  auto grad_qs = call.tensor<T>(), grad_ks = call.tensor<T>(), grad_vs = call.tensor<T>();
  auto grad_betas = call.tensor<T>(), grad_initial = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    const int64_t K = size.keys, V = size.values;
    const auto q = qs.steps(b, h), k = ks.steps(b, h), beta = betas.steps(b, h);
    const auto is_first = resets.steps(b);
    const auto error = errors.steps(b, h), grad_y = grad_ys.steps(b, h);
    const auto grad_q = grad_qs.steps(b, h), grad_k = grad_ks.steps(b, h);
    const auto grad_v = grad_vs.steps(b, h), grad_beta = grad_betas.steps(b, h);

    // Back in time: dv, dbeta, and the part of dk that is owed to the write.
    const auto prefetch_back = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, q, k, error, grad_y, grad_k, grad_v);
    };
    prefetch_last(size.time, prefetch_back);
    auto& gradient = workspace<MemoryGradient<T, P>>();
    gradient.start(grad_final.at_or_null(b, h), grad_final.stride[2], K, V);
    for (int64_t t = size.time - 1; t >= 0; t--) {
      prefetch_back(t - kAhead);
      const R key = R::load(k[t], K), e = R::load(error[t], V);
      R dk;
      const R du = gradient.step(R::load(q[t], K), key, *beta[t] * e, R::load(grad_y[t], V), dk);
      const R dv = *beta[t] * du;
      gradient.leave(key, dv);
      dk.store(grad_k[t], K);
      dv.store(grad_v[t], V);
      *grad_beta[t] = dot(du, e);
      if (*is_first[t]) gradient.forget();
    }
    gradient.finish(grad_initial.at(b, h), grad_initial.stride[2]);

    // Forward again: dq, and the part of dk that is owed to the error.
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, k, error, grad_y, grad_q, grad_k, grad_v);
    };
    prefetch_first(size.time, prefetch);
    auto& weights = workspace<MemoryReplay<T, P>>();
    weights.start(initial.at(b, h), initial.stride[2], K, V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch(t + kAhead);
      if (*is_first[t]) weights.forget();
      const R key = R::load(k[t], K), update = *beta[t] * R::load(error[t], V);
      const R dy = R::load(grad_y[t], V), dv = R::load(grad_v[t], V);
      R from_output, from_error;
      weights.template step<2>({{{dy.data(), &from_output}, {dv.data(), &from_error}}}, key,
                               update);
      (from_output + dot(update, dy) * key).store(grad_q[t], K);
      (R::load(grad_k[t], K) - from_error).store(grad_k[t], K);
    }
  });
}
