// kernels/feature_maps.py in C++. A map is applied in two halves, so that the backward pass needs
// only the first half's result: `activate` (saved), then `normalise`.
#pragma once
#include "elementwise.h"

namespace fastweights {

enum class FeatureMap : int64_t { softmax = 0, elu_sum = 1, elu = 2, identity = 3 };

template <class T>
constexpr T kSumFloor = T(1e-5);

template <class T, int P>
FW_INLINE Row<T, P> activate(FeatureMap map, const Row<T, P>& x, const Row<T, P>& mask) {
  return once_if_wide<Row<T, P>>([&]() __attribute__((always_inline)) {
    if (map == FeatureMap::softmax) return softmax(x, mask);
    if (map == FeatureMap::identity) return x;
    Row<T, P> positive = exp(x);
    for (int i = 0; i < Row<T, P>::kParts; i++)
      positive.part[i] = x.part[i] > T(0) ? x.part[i] + T(1) : positive.part[i];
    return select(mask, positive, T(0));
  });
}

template <class T, int P>
FW_INLINE Row<T, P> normalise(FeatureMap map, const Row<T, P>& activated) {
  if (map != FeatureMap::elu_sum) return activated;
  return (T(1) / (sum(activated) + kSumFloor<T>)) * activated;
}

// The gradient of x from the gradient of normalise(activate(x)).
template <class T, int P>
FW_INLINE Row<T, P> feature_adjoint(FeatureMap map, const Row<T, P>& activated, Row<T, P> grad) {
  return once_if_wide<Row<T, P>>([&]() __attribute__((always_inline)) {
    if (map == FeatureMap::identity) return grad;
    if (map == FeatureMap::softmax) return softmax_adjoint(activated, grad);
    if (map == FeatureMap::elu_sum) {
      T scale = T(1) / (sum(activated) + kSumFloor<T>);
      grad = scale * (grad - Row<T, P>::fill(scale * dot(activated, grad)));
    }
    // elu(x) + 1 has slope 1 where it exceeds 1 and slope exp(x), which is itself, elsewhere.
    for (int i = 0; i < Row<T, P>::kParts; i++)
      grad.part[i] *= activated.part[i] > T(1) ? Row<T, P>::fill(T(1)).part[0] : activated.part[i];
    return grad;
  });
}

}  // namespace fastweights
