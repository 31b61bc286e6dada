// exp, tanh and sigmoid over rows, and the feature maps with their derivatives.
//
// float: inline polynomials (Cephes), accurate to 3e-7 (tests/kernels/test_cpu_math.py). They make
// a whole recurrence twice as fast as calls to libm do. double: libm, for gradient checks.
#pragma once
#include "lanes.h"

namespace fastweights {

// 2^n * e^r with |r| <= ln(2) / 2; n comes from adding a shift that rounds to the nearest integer.
template <class V>
FW_INLINE V exp_part(V x, float) {
  typedef int32_t Bits __attribute__((vector_size(sizeof(V))));
  const V low = V{} - 87.0f, high = V{} + 88.0f, shift = V{} + 12582912.0f;
  x = x < low ? low : x;
  x = x > high ? high : x;
  V n = (x * 1.44269504088896341f + shift) - shift;
  V r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  Bits exponent = (__builtin_convertvector(n, Bits) + 127) << 23;
  V scale;
  std::memcpy(&scale, &exponent, sizeof(V));
  return p * scale;
}

template <class V>
FW_INLINE V exp_part(V x, double) {
  for (int i = 0; i < int(sizeof(V) / sizeof(double)); i++) x[i] = __builtin_exp(x[i]);
  return x;
}

// A polynomial near zero, where 1 - 2 / (exp(2x) + 1) would cancel.
template <class V>
FW_INLINE V tanh_part(V x, float tag) {
  V z = x * x;
  V p = z * -5.70498872745e-3f + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  p = p * z * x + x;
  V far = 1.0f - 2.0f / (exp_part(x * 2.0f, tag) + 1.0f);
  return z < V{} + 0.390625f ? p : far;
}

template <class V>
FW_INLINE V tanh_part(V x, double) {
  for (int i = 0; i < int(sizeof(V) / sizeof(double)); i++) x[i] = __builtin_tanh(x[i]);
  return x;
}

#define FW_ROW_FUNCTION(name, expression)                                          \
  template <class T, int P>                                                        \
  FW_INLINE Row<T, P> name(Row<T, P> x) {                                          \
    for (int i = 0; i < Row<T, P>::kParts; i++) x.part[i] = expression;            \
    return x;                                                                      \
  }
FW_ROW_FUNCTION(exp, exp_part(x.part[i], T()))
FW_ROW_FUNCTION(tanh, tanh_part(x.part[i], T()))
FW_ROW_FUNCTION(sigmoid, T(1) / (T(1) + exp_part(-x.part[i], T())))
FW_ROW_FUNCTION(silu, x.part[i] / (T(1) + exp_part(-x.part[i], T())))
#undef FW_ROW_FUNCTION

// The derivative of x sigmoid(x).
template <class T, int P>
FW_INLINE Row<T, P> silu_slope(const Row<T, P>& x) {
  const Row<T, P> s = sigmoid(x), one = Row<T, P>::fill(T(1));
  return s * (one + x * (one - s));
}

template <class T>
FW_INLINE T sigmoid(T x) {
  return sigmoid(Row<T, 4>::fill(x))[0];
}

// One in the live lanes, zero in the padding.
template <class T, int P>
FW_INLINE Row<T, P> live_lanes(int64_t live) {
  Row<T, P> mask = Row<T, P>::fill(T(0));
  for (int64_t i = 0; i < live; i++) mask.data()[i] = T(1);
  return mask;
}

template <class T, int P>
FW_INLINE Row<T, P> select(const Row<T, P>& mask, const Row<T, P>& yes, T no) {
  Row<T, P> row;
  for (int i = 0; i < Row<T, P>::kParts; i++)
    row.part[i] = mask.part[i] > T(0) ? yes.part[i] : typename Row<T, P>::Part{} + no;
  return row;
}

template <class T, int P>
FW_INLINE Row<T, P> softmax(const Row<T, P>& x, const Row<T, P>& mask) {
  return once_if_wide<Row<T, P>>([&]() __attribute__((always_inline)) {
    T top = maximum(select(mask, x, T(-__builtin_inf())));
    Row<T, P> e = select(mask, exp(x - Row<T, P>::fill(top)), T(0));
    return (T(1) / sum(e)) * e;
  });
}

template <class T, int P>
FW_INLINE Row<T, P> softmax_adjoint(const Row<T, P>& softmax, const Row<T, P>& grad) {
  return softmax * (grad - Row<T, P>::fill(dot(softmax, grad)));
}

}  // namespace fastweights
