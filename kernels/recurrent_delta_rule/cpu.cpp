// The recurrent delta rule on CPUs: the delta rule's cell behind a slow net that reads y_{t-1}.
#include "call.h"
#include "delta_memory.h"
#include "feature_maps.h"
#include "outer_sum.h"

using namespace fastweights;
using R = Row<T, P>;

// A head's recurrent weights, transposed for the backward pass.
struct SlowNet {
  Matrix<T, P> query, key, value;
  R strength;

  template <class M>
  static void each(Matrix<T, P>& to, const M& from, int64_t h, int64_t rows, int64_t columns,
                   bool transposed) {
    if (transposed)
      to.load_transposed(from.at(h), columns, rows, from.stride[1]);
    else
      to.load(from.at(h), rows, columns, from.stride[1]);
  }
};

struct Weights {
  Tensor<const T> query, key, value, strength;

  explicit Weights(Call& call)
      : query(call.tensor<const T>()), key(call.tensor<const T>()),
        value(call.tensor<const T>()), strength(call.tensor<const T>()) {}

  void load(SlowNet& net, int64_t h, const Sizes& size, bool transposed) const {
    SlowNet::each(net.query, query, h, size.values, size.keys, transposed);
    SlowNet::each(net.key, key, h, size.values, size.keys, transposed);
    SlowNet::each(net.value, value, h, size.values, size.values, transposed);
    net.strength = R::load(strength.at(h), size.values);
  }
};

struct Forward {
  DeltaMemory<T, P> memory;
  SlowNet net;
};

// What a step saves for the gradients of the recurrent weights.
struct Left {
  R heard, dq, dk, dv;
  T dbeta;
};

struct Backward {
  DeltaAdjoint<T, P> adjoint;
  SlowNet net;
  Buffer<Left> left;
};

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto map = FeatureMap(call.integer());
  const T largest = T(largest_strength(call.integer()));
  auto qs = call.tensor<const T>(), ks = call.tensor<const T>(), vs = call.tensor<const T>();
  auto betas = call.tensor<const T>();
  Weights weights(call);
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), initial_output = call.tensor<const T>();
  auto ys = call.tensor<T>(), final = call.tensor<T>(), final_output = call.tensor<T>();
  auto heards = call.tensor<T>(), activated_qs = call.tensor<T>(), activated_ks = call.tensor<T>();
  auto strengths = call.tensor<T>(), errors = call.tensor<T>();

  size.for_each_head([&](int64_t b, int64_t h) {
    const int64_t K = size.keys, V = size.values;
    const R mask = live_lanes<T, P>(K);
    const auto q = qs.steps(b, h), k = ks.steps(b, h), v = vs.steps(b, h), beta = betas.steps(b, h);
    const auto is_first = resets.steps(b);
    const auto y = ys.steps(b, h), saved_h = heards.steps(b, h);
    const auto saved_q = activated_qs.steps(b, h), saved_k = activated_ks.steps(b, h);
    const auto saved_beta = strengths.steps(b, h), saved_error = errors.steps(b, h);
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, q, k, v, y, saved_h, saved_q, saved_k, saved_error);
    };
    prefetch_first(size.time, prefetch);
    auto& [memory, net] = workspace<Forward>();
    memory.start(initial.at(b, h), initial.stride[2], K, V);
    weights.load(net, h, size, false);
    R answer = R::load(initial_output.at(b, h), V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch(t + kAhead);
      if (*is_first[t]) {
        memory.forget();
        answer = R::fill(T(0));
      }
      R heard = tanh(answer), error;
      R query = R::load(q[t], K) + net.query.read(V, heard);
      R key = R::load(k[t], K) + net.key.read(V, heard);
      R value = R::load(v[t], V) + net.value.read(V, heard);
      T strength = largest * sigmoid(*beta[t] + dot(net.strength, heard));
      query = activate(map, query, mask);
      key = activate(map, key, mask);
      answer = memory.step(normalise(map, query), normalise(map, key), value, strength, error);
      answer.store(y[t], V);
      if (!saved_h) continue;
      heard.store(saved_h[t], V);
      query.store(saved_q[t], K);
      key.store(saved_k[t], K);
      error.store(saved_error[t], V);
      *saved_beta[t] = strength;
    }
    answer.store(final_output.at(b, h), V);
    memory.finish(final.at(b, h), final.stride[2]);
  });
}

FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto map = FeatureMap(call.integer());
  const T largest = T(largest_strength(call.integer()));
  for (int input = 0; input < 4; input++) call.tensor<const T>();  // unneeded: see the saved ones
  Weights weights(call);
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  call.tensor<const T>();
  auto heards = call.tensor<const T>(), qs = call.tensor<const T>(), ks = call.tensor<const T>();
  auto betas = call.tensor<const T>(), errors = call.tensor<const T>();
  auto final = call.tensor<const T>(), grad_ys = call.tensor<const T>();
  auto grad_final = call.tensor<const T>(), grad_final_output = call.tensor<const T>();
  auto grad_qs = call.tensor<T>(), grad_ks = call.tensor<T>(), grad_vs = call.tensor<T>();
  auto grad_betas = call.tensor<T>();
  auto grad_query = call.tensor<T>(), grad_key = call.tensor<T>(), grad_value = call.tensor<T>();
  auto grad_strength = call.tensor<T>();
  auto grad_initial = call.tensor<T>(), grad_initial_output = call.tensor<T>();

  const int64_t V = size.values, K = size.keys, per_head = V * (2 * K + V + 1);
  Buffer<T> partial(size.batch * size.heads * per_head);
  // [query | key | value | strength], each for all heads, so that one sum over b covers all four.
  const int64_t offset[] = {0, size.heads * V * K, size.heads * 2 * V * K,
                            size.heads * V * (2 * K + V), size.heads * per_head};

  size.for_each_head([&](int64_t b, int64_t h) {
    const auto saved_h = heards.steps(b, h), q = qs.steps(b, h), k = ks.steps(b, h);
    const auto beta = betas.steps(b, h), error = errors.steps(b, h), grad_y = grad_ys.steps(b, h);
    const auto is_first = resets.steps(b);
    const auto grad_q = grad_qs.steps(b, h), grad_k = grad_ks.steps(b, h);
    const auto grad_v = grad_vs.steps(b, h), grad_beta = grad_betas.steps(b, h);
    const auto prefetch = [&](int64_t t) __attribute__((always_inline)) {
      prefetch_rows(P, t, saved_h, q, k, error, grad_y, grad_q, grad_k, grad_v);
    };
    auto& [adjoint, net, left] = workspace<Backward>();
    left.at_least(size.time);
    weights.load(net, h, size, true);
    const Beginnings<T> beginnings{is_first, initial.at(b, h), initial.stride[2]};
    const auto write_at = [&](int64_t t) {
      return Written<T, P>{normalise(map, R::load(k[t], K)), *beta[t] * R::load(error[t], V)};
    };
    R carried;
    walk_back([&](bool again) __attribute__((always_inline)) {
      adjoint.start(size.time, final.at(b, h), final.stride[2], grad_final.at_or_null(b, h),
                    grad_final.stride[2], K, V, beginnings, again, write_at);
      prefetch_last(size.time, prefetch);
      carried = R::load_or_zero(grad_final_output.at_or_null(b, h), V);
      for (int64_t t = size.time - 1; t >= 0; t--) {
        prefetch(t - kAhead);
        R query = R::load(q[t], K), key = R::load(k[t], K);
        T strength = *beta[t];
        auto grad = adjoint.step(t, normalise(map, query), normalise(map, key),
                                 R::load(error[t], V), strength, carried + R::load(grad_y[t], V),
                                 write_at);
        R dq = feature_adjoint(map, query, grad.q), dk = feature_adjoint(map, key, grad.k);
        T dbeta = grad.beta * strength * (T(1) - strength / largest);
        dq.store(grad_q[t], K);
        dk.store(grad_k[t], K);
        grad.v.store(grad_v[t], V);
        *grad_beta[t] = dbeta;
        R heard = R::load(saved_h[t], V);
        left[t] = {heard, dq, dk, grad.v, dbeta};
        if (t == 0 || *is_first[t])
          adjoint.arrive(t, normalise(map, key), R::load(error[t], V));
        if (*is_first[t]) {
          adjoint.cross_reset(t, write_at);
          carried = R::fill(T(0));
          continue;
        }
        R dheard = net.query.read(K, dq) + net.key.read(K, dk) + net.value.read(V, grad.v) +
                   dbeta * net.strength;
        carried = dheard * (R::fill(T(1)) - heard * heard);
      }
      return adjoint.arrivals.all();
    });
    adjoint.finish(grad_initial.at(b, h), grad_initial.stride[2]);
    carried.store(grad_initial_output.at(b, h), V);

    T* mine = partial.data() + b * size.heads * per_head;
    auto heard = [&](int64_t t) -> R& { return left[t].heard; };
    auto sum = [&](R Left::*row, int64_t columns, T* to) {
      auto row_at = [&](int64_t t) -> R& { return left[t].*row; };
      outer_sum<T, P>(size.time, V, columns, heard, row_at, to);
    };
    sum(&Left::dq, K, mine + offset[0] + h * V * K);
    sum(&Left::dk, K, mine + offset[1] + h * V * K);
    sum(&Left::dv, V, mine + offset[2] + h * V * V);
    R total = R::fill(T(0));
    for (int64_t t = 0; t < size.time; t++) total = total + left[t].dbeta * left[t].heard;
    total.store(mine + offset[3] + h * V, V);
  });
  const Tensor<T> totals[] = {grad_query, grad_key, grad_value, grad_strength};
  for (int i = 0; i < 4; i++)
    sum_over_batch(size.batch, size.heads * per_head, offset[i + 1] - offset[i],
                   partial.data() + offset[i], totals[i].data, size.threads);
}
