// x + second(relu(first(relu(x)))), two 3 x 3 convolutions. Channels last.
#include "convolution.h"

using namespace fastweights;

constexpr int C = PK;
constexpr int64_t kAllTaps = kTaps * kTaps * C * C, kAllPoints = kPoints * C * C;

struct Unit : Batch {
  using Batch::Batch;

  int64_t numbers() const { return size.pixels() * C; }  // per picture
};

struct UnitSpace : Space {
  Numbers inner, points;
};

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  const Unit unit(call);
  auto x = call.pointer<const T>();
  auto first_taps = call.pointer<const T>(), first_bias = call.pointer<const T>();
  auto second_taps = call.pointer<const T>(), second_bias = call.pointer<const T>();
  auto y = call.pointer<T>(), kept = call.pointer<T>();
  Numbers points;
  T *first = points.at_least(2 * kAllPoints), *second = first + kAllPoints;
  transform_taps(first_taps, C * C, first);
  transform_taps(second_taps, C * C, second);

  parallel_for(unit.pictures, unit.threads, [&](int64_t n) {
    auto& space = workspace<UnitSpace>();
    const T* in = x + n * unit.numbers();
    T *out = y + n * unit.numbers();
    T* inner = kept ? kept + n * unit.numbers() : space.inner.at_least(unit.numbers());
    convolve<C, C>(unit.size, in, first, space, Rectified(),
                   [=](int64_t at, int c, Part sum) __attribute__((always_inline)) {
                     store(inner + at, Rectified()(sum + load(first_bias + c)));
                   });
    convolve<C, C>(unit.size, inner, second, space, AsItIs(),
                   [=](int64_t at, int c, Part sum) __attribute__((always_inline)) {
                     store(out + at, load(in + at) + (sum + load(second_bias + c)));
                   });
  });
}

// The backward taps are rotated by 180 degrees, with input and output channels swapped.
FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  const Unit unit(call);
  auto grad_y = call.pointer<const T>(), x = call.pointer<const T>(), kept = call.pointer<const T>();
  auto first_turned = call.pointer<const T>(), second_turned = call.pointer<const T>();
  auto grad_x = call.pointer<T>();
  auto grad_first = call.pointer<T>(), grad_first_bias = call.pointer<T>();
  auto grad_second = call.pointer<T>(), grad_second_bias = call.pointer<T>();
  Numbers points;
  T *first = points.at_least(2 * kAllPoints), *second = first + kAllPoints;
  transform_taps(first_turned, C * C, first);
  transform_taps(second_turned, C * C, second);

  const Groups groups(unit.pictures);
  Numbers partial;
  T *taps[2], *bias[2];
  taps[0] = partial.zeros(2 * groups.count * (kAllTaps + C));
  taps[1] = taps[0] + groups.count * kAllTaps;
  bias[0] = taps[1] + groups.count * kAllTaps;
  bias[1] = bias[0] + groups.count * C;

  parallel_for(groups.count, unit.threads, [&](int64_t group) {
    auto& space = workspace<UnitSpace>();
    const int64_t begin = groups.begin(group), end = groups.end(group), picture = unit.numbers();
    T* grad_inner = space.inner.at_least(groups.largest() * picture);
    // One convolution after the other: the working set for one's sums fills the L2 cache.
    T* sums = space.points.zeros(kAllPoints);
    for (int64_t n = begin; n < end; n++) {
      const T *inner = kept + n * picture, *grad = grad_y + n * picture;
      T* to = grad_inner + (n - begin) * picture;
      add_taps_gradient<C, C>(unit.size, inner, grad, space, AsItIs(), sums);
      add_bias_gradient<C>(unit.size.pixels(), grad, bias[1] + group * C);
      convolve<C, C>(unit.size, grad, second, space, AsItIs(),
                     [=](int64_t at, int, Part sum) __attribute__((always_inline)) {
                       store(to + at, let_through(load(inner + at), sum));
                     });
    }
    gather_taps(sums, C * C, taps[1] + group * kAllTaps);
    space.points.zeros(kAllPoints);
    for (int64_t n = begin; n < end; n++) {
      const T *in = x + n * picture, *grad = grad_y + n * picture;
      const T* inner = grad_inner + (n - begin) * picture;
      T* to = grad_x + n * picture;
      add_taps_gradient<C, C>(unit.size, in, inner, space, Rectified(), sums);
      add_bias_gradient<C>(unit.size.pixels(), inner, bias[0] + group * C);
      convolve<C, C>(unit.size, inner, first, space, AsItIs(),
                     [=](int64_t at, int, Part sum) __attribute__((always_inline)) {
                       store(to + at, load(grad + at) + let_through(load(in + at), sum));
                     });
    }
    gather_taps(sums, C * C, taps[0] + group * kAllTaps);
  });
  groups.add_up(taps[0], kAllTaps, grad_first);
  groups.add_up(bias[0], C, grad_first_bias);
  groups.add_up(taps[1], kAllTaps, grad_second);
  groups.add_up(bias[1], C, grad_second_bias);
}
