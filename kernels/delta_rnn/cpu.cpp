// The Delta RNN on CPUs: two delta memories, the second one asked with the previous output.
#include "two_memories.h"

using namespace fastweights;
using R = Row<T, P>;

enum class Version : int64_t { A = 0, B = 1 };

struct Forward {
  DeltaMemory<T, P> memory, recurrent;
};

struct Backward {
  DeltaAdjoint<T, P> memory, recurrent;
};

FW_EXPORT void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto version = Version(call.integer());
  Inputs in(call);
  auto is_first = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), initial_recurrent = call.tensor<const T>();
  auto initial_output = call.tensor<const T>();
  auto y = call.tensor<T>(), final = call.tensor<T>(), final_recurrent = call.tensor<T>();
  auto final_output = call.tensor<T>();
  auto saved_error = call.tensor<T>(), saved_recurrent_error = call.tensor<T>();
  auto saved_query = call.tensor<T>(), saved_output = call.tensor<T>();
  const int64_t K = size.keys, V = size.values;
  R mask = live_lanes<T, P>(V);

  size.for_each_head([&](int64_t b, int64_t h) {
    auto& [memory, recurrent] = workspace<Forward>();
    memory.start(initial.at(b, h), initial.stride[2], K, V);
    recurrent.start(initial_recurrent.at(b, h), initial_recurrent.stride[2], V, V);
    R output = R::load(initial_output.at(b, h), V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch_rows(P, t + kAhead, b, h, in.q, in.k, in.v, in.recurrent_k, in.recurrent_v, y,
                    saved_error, saved_recurrent_error, saved_query, saved_output);
      if (*is_first.at(t, b)) {
        memory.forget();
        recurrent.forget();
        output = R::fill(T(0));
      }
      R query = version == Version::B ? softmax(output, mask) : output;
      R error, recurrent_error;
      R forth = memory.step(R::load(in.q.at(t, b, h), K), R::load(in.k.at(t, b, h), K),
                            R::load(in.v.at(t, b, h), V), *in.beta.at(t, b, h), error);
      R back = recurrent.step(query, R::load(in.recurrent_k.at(t, b, h), V),
                              R::load(in.recurrent_v.at(t, b, h), V),
                              *in.recurrent_beta.at(t, b, h), recurrent_error);
      output = version == Version::B ? forth + back : softmax(forth + back, mask);
      output.store(y.at(t, b, h), V);
      if (!saved_error) continue;
      error.store(saved_error.at(t, b, h), V);
      recurrent_error.store(saved_recurrent_error.at(t, b, h), V);
      query.store(saved_query.at(t, b, h), V);
      output.store(saved_output.at(t, b, h), V);
    }
    output.store(final_output.at(b, h), V);
    memory.finish(final.at(b, h), final.stride[2]);
    recurrent.finish(final_recurrent.at(b, h), final_recurrent.stride[2]);
  });
}

FW_EXPORT void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto version = Version(call.integer());
  Inputs in(call);
  auto is_first = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), initial_recurrent = call.tensor<const T>();
  call.tensor<const T>();
  auto error = call.tensor<const T>(), recurrent_error = call.tensor<const T>();
  auto recurrent_query = call.tensor<const T>(), output = call.tensor<const T>();
  auto final = call.tensor<const T>(), final_recurrent = call.tensor<const T>();
  auto grad_y = call.tensor<const T>(), grad_final = call.tensor<const T>();
  auto grad_final_recurrent = call.tensor<const T>(), grad_final_output = call.tensor<const T>();
  auto grad_q = call.tensor<T>(), grad_k = call.tensor<T>(), grad_v = call.tensor<T>();
  auto grad_beta = call.tensor<T>(), grad_recurrent_k = call.tensor<T>();
  auto grad_recurrent_v = call.tensor<T>(), grad_recurrent_beta = call.tensor<T>();
  auto grad_initial = call.tensor<T>(), grad_initial_recurrent = call.tensor<T>();
  auto grad_initial_output = call.tensor<T>();
  const int64_t K = size.keys, V = size.values;

  size.for_each_head([&](int64_t b, int64_t h) {
    auto first = [&](int64_t t) { return *is_first.at(t, b); };
    auto write_at = [&](int64_t t) {
      return Written<T, P>{R::load(in.k.at(t, b, h), K),
                           *in.beta.at(t, b, h) * R::load(error.at(t, b, h), V)};
    };
    auto recurrent_write_at = [&](int64_t t) {
      return Written<T, P>{R::load(in.recurrent_k.at(t, b, h), V),
                           *in.recurrent_beta.at(t, b, h) *
                               R::load(recurrent_error.at(t, b, h), V)};
    };
    auto& [memory, recurrent] = workspace<Backward>();
    memory.start(final.at(b, h), final.stride[2], grad_final.at_or_null(b, h), grad_final.stride[2], K, V);
    recurrent.start(final_recurrent.at(b, h), final_recurrent.stride[2],
                    grad_final_recurrent.at_or_null(b, h), grad_final_recurrent.stride[2], V, V);
    R carried = R::load_or_zero(grad_final_output.at_or_null(b, h), V);
    for (int64_t t = size.time - 1; t >= 0; t--) {
      prefetch_rows(P, t - kAhead, b, h, in.q, in.k, in.recurrent_k, error, recurrent_error,
                    recurrent_query, grad_y, grad_q, grad_k, grad_v, grad_recurrent_k,
                    grad_recurrent_v);
      R dy = carried + R::load(grad_y.at(t, b, h), V);
      R query = R::load(recurrent_query.at(t, b, h), V);
      if (version == Version::A) dy = softmax_adjoint(R::load(output.at(t, b, h), V), dy);
      auto grad = memory.step(R::load(in.q.at(t, b, h), K), R::load(in.k.at(t, b, h), K),
                              R::load(error.at(t, b, h), V), *in.beta.at(t, b, h), dy);
      auto recurrent_grad = recurrent.step(query, R::load(in.recurrent_k.at(t, b, h), V),
                                           R::load(recurrent_error.at(t, b, h), V),
                                           *in.recurrent_beta.at(t, b, h), dy);
      grad.q.store(grad_q.at(t, b, h), K);
      grad.k.store(grad_k.at(t, b, h), K);
      grad.v.store(grad_v.at(t, b, h), V);
      *grad_beta.at(t, b, h) = grad.beta;
      recurrent_grad.k.store(grad_recurrent_k.at(t, b, h), V);
      recurrent_grad.v.store(grad_recurrent_v.at(t, b, h), V);
      *grad_recurrent_beta.at(t, b, h) = recurrent_grad.beta;
      carried = version == Version::B ? softmax_adjoint(query, recurrent_grad.q) : recurrent_grad.q;
      if (!first(t)) continue;
      memory.cross_reset(t, first, initial.at(b, h), initial.stride[2], write_at);
      recurrent.cross_reset(t, first, initial_recurrent.at(b, h), initial_recurrent.stride[2],
                            recurrent_write_at);
      carried = R::fill(T(0));
    }
    memory.finish(grad_initial.at(b, h), grad_initial.stride[2]);
    recurrent.finish(grad_initial_recurrent.at(b, h), grad_initial_recurrent.stride[2]);
    carried.store(grad_initial_output.at(b, h), V);
  });
}
