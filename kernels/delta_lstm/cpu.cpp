// The Delta LSTM on CPUs: three gates, each the sum of two delta memories' answers.
#include "two_memories.h"

using namespace fastweights;
using R = Row<T, P>;

enum class Version : int64_t { A = 0, B = 1, C = 2, D = 3 };
enum Gate { kMain = 0, kForget = 1, kOutput = 2, kGates = 3 };

struct Forward {
  DeltaMemory<T, P> memory[kGates], recurrent[kGates];
};

struct Backward {
  DeltaAdjoint<T, P> memory[kGates], recurrent[kGates];
};

FW_EXPORT void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto version = Version(call.integer());
  Inputs in(call);
  auto is_first = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), initial_recurrent = call.tensor<const T>();
  auto initial_cell = call.tensor<const T>(), initial_output = call.tensor<const T>();
  auto y = call.tensor<T>(), final = call.tensor<T>(), final_recurrent = call.tensor<T>();
  auto final_cell = call.tensor<T>(), final_output = call.tensor<T>();
  auto saved_error = call.tensor<T>(), saved_recurrent_error = call.tensor<T>();
  auto saved_query = call.tensor<T>(), saved_gates = call.tensor<T>();
  auto saved_cell = call.tensor<T>();
  const int64_t K = size.keys, V = size.values;
  R mask = live_lanes<T, P>(V);

  size.for_each_head([&](int64_t b, int64_t h) {
    auto& [memory, recurrent] = workspace<Forward>();
    for (int g = 0; g < kGates; g++) {
      memory[g].start(initial.at(b, h, g), initial.stride[3], K, V);
      recurrent[g].start(initial_recurrent.at(b, h, g), initial_recurrent.stride[3], V, V);
    }
    R cell = R::load(initial_cell.at(b, h), V), output = R::load(initial_output.at(b, h), V);
    for (int64_t t = 0; t < size.time; t++) {
      prefetch_rows(3 * P, t + kAhead, b, h, in.q, in.k, in.v, in.recurrent_k, in.recurrent_v,
                    saved_error, saved_recurrent_error, saved_gates);
      if (*is_first.at(t, b)) {
        for (auto& each : memory) each.forget();
        for (auto& each : recurrent) each.forget();
        cell = output = R::fill(T(0));
      }
      R query = version == Version::A ? output : softmax(output, mask);
      R forth[kGates], gate[kGates], error[kGates], recurrent_error[kGates];
      for (int g = 0; g < kGates; g++) {
        forth[g] = memory[g].step(R::load(in.q.at(t, b, h, g), K), R::load(in.k.at(t, b, h, g), K),
                                  R::load(in.v.at(t, b, h, g), V), *in.beta.at(t, b, h, g),
                                  error[g]);
        gate[g] = forth[g] + recurrent[g].step(query, R::load(in.recurrent_k.at(t, b, h, g), V),
                                               R::load(in.recurrent_v.at(t, b, h, g), V),
                                               *in.recurrent_beta.at(t, b, h, g),
                                               recurrent_error[g]);
        if (g != kMain || version != Version::D) gate[g] = sigmoid(gate[g]);
      }
      R cell_before = cell;
      cell = gate[kMain] + gate[kForget] * (cell_before - gate[kMain]);
      output = cell * gate[kOutput];
      if (version == Version::A) output = softmax(output, mask);
      if (version == Version::C) output = output + forth[kMain];
      output.store(y.at(t, b, h), V);
      if (!saved_error) continue;
      for (int g = 0; g < kGates; g++) {
        error[g].store(saved_error.at(t, b, h, g), V);
        recurrent_error[g].store(saved_recurrent_error.at(t, b, h, g), V);
        gate[g].store(saved_gates.at(t, b, h, g), V);
      }
      query.store(saved_query.at(t, b, h), V);
      cell_before.store(saved_cell.at(t, b, h), V);
    }
    cell.store(final_cell.at(b, h), V);
    output.store(final_output.at(b, h), V);
    for (int g = 0; g < kGates; g++) {
      memory[g].finish(final.at(b, h, g), final.stride[3]);
      recurrent[g].finish(final_recurrent.at(b, h, g), final_recurrent.stride[3]);
    }
  });
}

// From the gradient of y to those of the three gates' arguments (backward.md).
struct GateGradients {
  R gate[kGates], carried_cell;
};

static GateGradients through_gates(Version version, const R (&gate)[kGates], const R& cell_before,
                                   const R& dy, const R& dcell, const R& mask) {
  R one = R::fill(T(1)), u = gate[kMain], f = gate[kForget], o = gate[kOutput];
  R cell = u + f * (cell_before - u), dproduct = dy;
  if (version == Version::A) dproduct = softmax_adjoint(softmax(cell * o, mask), dy);
  R dc = dcell + dproduct * o;
  GateGradients d;
  d.gate[kOutput] = dproduct * cell * o * (one - o);
  d.gate[kForget] = dc * (cell_before - u) * f * (one - f);
  d.gate[kMain] = dc * (one - f);
  if (version != Version::D) d.gate[kMain] = d.gate[kMain] * u * (one - u);
  d.carried_cell = dc * f;
  return d;
}

FW_EXPORT void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  Sizes size(call);
  auto version = Version(call.integer());
  Inputs in(call);
  auto is_first = call.tensor<const bool>();
  auto initial = call.tensor<const T>(), initial_recurrent = call.tensor<const T>();
  for (int vector = 0; vector < 2; vector++) call.tensor<const T>();
  auto error = call.tensor<const T>(), recurrent_error = call.tensor<const T>();
  auto recurrent_query = call.tensor<const T>(), gates = call.tensor<const T>();
  auto cell_before = call.tensor<const T>();
  auto final = call.tensor<const T>(), final_recurrent = call.tensor<const T>();
  auto grad_y = call.tensor<const T>(), grad_final = call.tensor<const T>();
  auto grad_final_recurrent = call.tensor<const T>(), grad_final_cell = call.tensor<const T>();
  auto grad_final_output = call.tensor<const T>();
  auto grad_q = call.tensor<T>(), grad_k = call.tensor<T>(), grad_v = call.tensor<T>();
  auto grad_beta = call.tensor<T>(), grad_recurrent_k = call.tensor<T>();
  auto grad_recurrent_v = call.tensor<T>(), grad_recurrent_beta = call.tensor<T>();
  auto grad_initial = call.tensor<T>(), grad_initial_recurrent = call.tensor<T>();
  auto grad_initial_cell = call.tensor<T>(), grad_initial_output = call.tensor<T>();
  const int64_t K = size.keys, V = size.values;
  R mask = live_lanes<T, P>(V);

  size.for_each_head([&](int64_t b, int64_t h) {
    auto first = [&](int64_t t) { return *is_first.at(t, b); };
    auto& [memory, recurrent] = workspace<Backward>();
    for (int g = 0; g < kGates; g++) {
      memory[g].start(final.at(b, h, g), final.stride[3], grad_final.at_or_null(b, h, g),
                      grad_final.stride[3], K, V);
      recurrent[g].start(final_recurrent.at(b, h, g), final_recurrent.stride[3],
                         grad_final_recurrent.at_or_null(b, h, g), grad_final_recurrent.stride[3], V, V);
    }
    R carried = R::load_or_zero(grad_final_output.at_or_null(b, h), V);
    R carried_cell = R::load_or_zero(grad_final_cell.at_or_null(b, h), V);
    for (int64_t t = size.time - 1; t >= 0; t--) {
      prefetch_rows(3 * P, t - kAhead, b, h, in.q, in.k, in.recurrent_k, error, recurrent_error,
                    gates, grad_q, grad_k, grad_v, grad_recurrent_k, grad_recurrent_v);
      R dy = carried + R::load(grad_y.at(t, b, h), V);
      R query = R::load(recurrent_query.at(t, b, h), V), dquery = R::fill(T(0)), gate[kGates];
      for (int g = 0; g < kGates; g++) gate[g] = R::load(gates.at(t, b, h, g), V);
      GateGradients d = through_gates(version, gate, R::load(cell_before.at(t, b, h), V), dy,
                                      carried_cell, mask);
      for (int g = 0; g < kGates; g++) {
        R dforth = version == Version::C && g == kMain ? d.gate[g] + dy : d.gate[g];
        auto grad = memory[g].step(R::load(in.q.at(t, b, h, g), K), R::load(in.k.at(t, b, h, g), K),
                                   R::load(error.at(t, b, h, g), V), *in.beta.at(t, b, h, g),
                                   dforth);
        auto recurrent_grad = recurrent[g].step(
            query, R::load(in.recurrent_k.at(t, b, h, g), V),
            R::load(recurrent_error.at(t, b, h, g), V), *in.recurrent_beta.at(t, b, h, g),
            d.gate[g]);
        dquery = dquery + recurrent_grad.q;
        grad.q.store(grad_q.at(t, b, h, g), K);
        grad.k.store(grad_k.at(t, b, h, g), K);
        grad.v.store(grad_v.at(t, b, h, g), V);
        *grad_beta.at(t, b, h, g) = grad.beta;
        recurrent_grad.k.store(grad_recurrent_k.at(t, b, h, g), V);
        recurrent_grad.v.store(grad_recurrent_v.at(t, b, h, g), V);
        *grad_recurrent_beta.at(t, b, h, g) = recurrent_grad.beta;
      }
      carried = version == Version::A ? dquery : softmax_adjoint(query, dquery);
      carried_cell = d.carried_cell;
      if (!first(t)) continue;
      for (int g = 0; g < kGates; g++) {
        memory[g].cross_reset(t, first, initial.at(b, h, g), initial.stride[3], [&](int64_t r) {
          return Written<T, P>{R::load(in.k.at(r, b, h, g), K),
                               *in.beta.at(r, b, h, g) * R::load(error.at(r, b, h, g), V)};
        });
        recurrent[g].cross_reset(
            t, first, initial_recurrent.at(b, h, g), initial_recurrent.stride[3], [&](int64_t r) {
              return Written<T, P>{R::load(in.recurrent_k.at(r, b, h, g), V),
                                   *in.recurrent_beta.at(r, b, h, g) *
                                       R::load(recurrent_error.at(r, b, h, g), V)};
            });
      }
      carried = carried_cell = R::fill(T(0));
    }
    for (int g = 0; g < kGates; g++) {
      memory[g].finish(grad_initial.at(b, h, g), grad_initial.stride[3]);
      recurrent[g].finish(grad_initial_recurrent.at(b, h, g), grad_initial_recurrent.stride[3]);
    }
    carried.store(grad_initial_output.at(b, h), V);
    carried_cell.store(grad_initial_cell.at(b, h), V);
  });
}
