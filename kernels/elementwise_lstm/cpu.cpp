// The element-wise LSTM's cell on CPUs, for any number of units: two registers of units of one
// batch column at a time, through the whole unroll.
#include "call.h"
#include "elementwise.h"
#include "outer_sum.h"

using namespace fastweights;

constexpr int kUnits = 2 * kRegisterBytes / int(sizeof(T));
using Lane = Row<T, kUnits>;

struct UnitSizes {
  int64_t time, batch, units, threads;

  explicit UnitSizes(Call& call)
      : time(call.integer()), batch(call.integer()), units(call.integer()),
        threads(call.integer()) {}

  // Calls body(batch column, first unit, number of live units in the row).
  template <class Body>
  void for_each_row(Body body) const {
    const int64_t rows = (units + kUnits - 1) / kUnits;
    parallel_for(batch * rows, threads, [&](int64_t n) {
      const int64_t b = n / rows, d = n % rows * kUnits;
      body(b, d, units - d < kUnits ? units - d : kUnits);
    });
  }
};

// For the candidate, input gate and forget gate: their inputs, weights, results or gradients.
template <class E>
struct Three {
  Tensor<E> z, i, f;

  explicit Three(Call& call) : z(call.tensor<E>()), i(call.tensor<E>()), f(call.tensor<E>()) {}
};

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  UnitSizes size(call);
  Three<const T> inputs(call), weights(call);
  auto resets = call.tensor<const bool>();
  auto initial = call.tensor<const T>();
  auto ys = call.tensor<T>(), final = call.tensor<T>();
  Three<T> saved(call);
  auto saved_before = call.tensor<T>();

  size.for_each_row([&](int64_t b, int64_t d, int64_t live) {
    const auto z_x = inputs.z.steps(b, d), i_x = inputs.i.steps(b, d), f_x = inputs.f.steps(b, d);
    const auto is_first = resets.steps(b);
    const auto y = ys.steps(b, d), before = saved_before.steps(b, d);
    const auto saved_z = saved.z.steps(b, d), saved_i = saved.i.steps(b, d);
    const auto saved_f = saved.f.steps(b, d);
    const Lane w_z = Lane::load(weights.z.at(d), live), w_i = Lane::load(weights.i.at(d), live);
    const Lane w_f = Lane::load(weights.f.at(d), live);
    Lane cell = Lane::load(initial.at(b, d), live);
    for (int64_t t = 0; t < size.time; t++) {
      if (*is_first[t]) cell = Lane::fill(T(0));
      const Lane z = tanh(Lane::load(z_x[t], live) + w_z * cell);
      const Lane i = sigmoid(Lane::load(i_x[t], live) + w_i * cell);
      const Lane f = sigmoid(Lane::load(f_x[t], live) + w_f * cell);
      if (before) {
        cell.store(before[t], live);
        z.store(saved_z[t], live), i.store(saved_i[t], live), f.store(saved_f[t], live);
      }
      cell = f * cell + i * z;
      cell.store(y[t], live);
    }
    cell.store(final.at(b, d), live);
  });
}

FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  UnitSizes size(call);
  Three<const T>{call};  // not needed: the saved tensors replace them
  Three<const T> weights(call);
  auto resets = call.tensor<const bool>();
  call.tensor<const T>();
  Three<const T> saved(call);
  auto saved_before = call.tensor<const T>();
  auto grad_ys = call.tensor<const T>(), grad_final = call.tensor<const T>();
  Three<T> gradients(call), grad_weights(call);
  auto grad_initial = call.tensor<T>();
  const int64_t D = size.units;
  Buffer<T> partial(size.batch * 3 * D);  // weight gradients per batch column: [B, 3, D]

  size.for_each_row([&](int64_t b, int64_t d, int64_t live) {
    const auto saved_z = saved.z.steps(b, d), saved_i = saved.i.steps(b, d);
    const auto saved_f = saved.f.steps(b, d), saved_c = saved_before.steps(b, d);
    const auto is_first = resets.steps(b);
    const auto grad_y = grad_ys.steps(b, d);
    const auto grad_z = gradients.z.steps(b, d), grad_i = gradients.i.steps(b, d);
    const auto grad_f = gradients.f.steps(b, d);
    const Lane one = Lane::fill(T(1)), zero = Lane::fill(T(0));
    const Lane w_z = Lane::load(weights.z.at(d), live), w_i = Lane::load(weights.i.at(d), live);
    const Lane w_f = Lane::load(weights.f.at(d), live);
    Lane dw_z = zero, dw_i = zero, dw_f = zero;
    Lane dc = Lane::load_or_zero(grad_final.at_or_null(b, d), live);
    for (int64_t t = size.time - 1; t >= 0; t--) {
      const Lane z = Lane::load(saved_z[t], live), i = Lane::load(saved_i[t], live);
      const Lane f = Lane::load(saved_f[t], live), before = Lane::load(saved_c[t], live);
      dc = dc + Lane::load(grad_y[t], live);
      const Lane dz = dc * i * (one - z * z), di = dc * z * i * (one - i);
      const Lane df = dc * before * f * (one - f);
      dz.store(grad_z[t], live), di.store(grad_i[t], live), df.store(grad_f[t], live);
      dw_z = dw_z + dz * before, dw_i = dw_i + di * before, dw_f = dw_f + df * before;
      dc = *is_first[t] ? zero : dc * f + w_z * dz + w_i * di + w_f * df;
    }
    dc.store(grad_initial.at(b, d), live);
    T* mine = partial.data() + b * 3 * D + d;
    dw_z.store(mine, live), dw_i.store(mine + D, live), dw_f.store(mine + 2 * D, live);
  });
  Tensor<T>* totals[] = {&grad_weights.z, &grad_weights.i, &grad_weights.f};
  for (int gate = 0; gate < 3; gate++)
    sum_over_batch(size.batch, 3 * D, D, partial.data() + gate * D, totals[gate]->data,
                   size.threads);
}
