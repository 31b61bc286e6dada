// kernels/feature_maps.py in C++. A map is applied in two parts, `activate` and `normalise`, and
// the backward pass needs only the result of `activate`, which is saved. The slope of silu cannot
// be derived from its value, so `normalise` does all of silu_unit.
#pragma once
#include "elementwise.h"

namespace fastweights {

enum class FeatureMap : int64_t {
  softmax = 0, elu_sum = 1, elu = 2, identity = 3, unit = 4, silu_unit = 5
};

template <class T>
constexpr T kSumFloor = T(1e-5);  // added to the sum in elu_sum
template <class T>
constexpr T kSquareFloor = T(1e-6);  // added to a squared length

// The largest write strength, from the map's index in STRENGTH_MAPS: 1 for sigmoid, 2 for
// double_sigmoid. The slope of such a strength b is b (1 - b / largest).
FW_INLINE int64_t largest_strength(int64_t place) { return 1 + place; }

template <class T, int P>
FW_INLINE Row<T, P> activate(FeatureMap map, const Row<T, P>& x, const Row<T, P>& mask) {
  return once_if_wide<Row<T, P>>([&]() __attribute__((always_inline)) {
    if (map == FeatureMap::softmax) return softmax(x, mask);
    if (map >= FeatureMap::identity) return x;
    Row<T, P> positive = exp(x);
    for (int i = 0; i < Row<T, P>::kParts; i++)
      positive.part[i] = x.part[i] > T(0) ? x.part[i] + T(1) : positive.part[i];
    return select(mask, positive, T(0));
  });
}

template <class T, int P>
FW_INLINE T inverse_length(const Row<T, P>& x) {
  return T(1) / T(__builtin_sqrt(dot(x, x) + kSquareFloor<T>));
}

template <class T, int P>
FW_INLINE Row<T, P> normalise(FeatureMap map, const Row<T, P>& activated) {
  if (map == FeatureMap::elu_sum) return (T(1) / (sum(activated) + kSumFloor<T>)) * activated;
  if (map < FeatureMap::unit) return activated;
  return once_if_wide<Row<T, P>>([&]() __attribute__((always_inline)) {
    const Row<T, P> x = map == FeatureMap::unit ? activated : silu(activated);
    return inverse_length(x) * x;
  });
}

// The gradient through x / |x|: the component orthogonal to x.
template <class T, int P>
FW_INLINE Row<T, P> unit_adjoint(const Row<T, P>& x, const Row<T, P>& grad) {
  const T scale = inverse_length(x);
  return scale * (grad - (scale * scale * dot(x, grad)) * x);
}

// The gradient of x from the gradient of normalise(activate(x)).
template <class T, int P>
FW_INLINE Row<T, P> feature_adjoint(FeatureMap map, const Row<T, P>& activated, Row<T, P> grad) {
  return once_if_wide<Row<T, P>>([&]() __attribute__((always_inline)) {
    if (map == FeatureMap::identity) return grad;
    if (map == FeatureMap::softmax) return softmax_adjoint(activated, grad);
    if (map == FeatureMap::unit) return unit_adjoint(activated, grad);
    if (map == FeatureMap::silu_unit)
      return unit_adjoint(silu(activated), grad) * silu_slope(activated);
    if (map == FeatureMap::elu_sum) {
      T scale = T(1) / (sum(activated) + kSumFloor<T>);
      grad = scale * (grad - Row<T, P>::fill(scale * dot(activated, grad)));
    }
    // While elu(x) + 1 is below 1, its slope exp(x) equals its value. Above 1 (and for NaN, as in
    // PyTorch) the slope is 1.
    for (int i = 0; i < Row<T, P>::kParts; i++)
      grad.part[i] *= activated.part[i] <= T(1) ? activated.part[i] : Row<T, P>::fill(T(1)).part[0];
    return grad;
  });
}

}  // namespace fastweights
