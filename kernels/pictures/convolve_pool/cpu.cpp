// The start of an image-stem stage, on floating-point numbers [pictures, height, width, C].
#include "stage.h"

using namespace fastweights;

constexpr int64_t kAllPoints = kPoints * C * K;

struct StageSpace : Space {
  Numbers convolved, points;
};

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  const Stage stage(call);
  auto x = call.pointer<const T>(), taps = call.pointer<const T>(), bias = call.pointer<const T>();
  auto y = call.pointer<T>();
  auto places = call.pointer<uint8_t>();
  Numbers buffer;
  T* points = buffer.at_least(kAllPoints);
  transform_taps(taps, C * K, points);

  parallel_for(stage.pictures, stage.threads, [&](int64_t n) {
    auto& space = workspace<StageSpace>();
    T* convolved = space.convolved.at_least(stage.outputs());
    convolve<C, K>(stage.size, x + n * stage.inputs(), points, space, AsItIs(),
                   [=](int64_t at, int k, Part sum) __attribute__((always_inline)) {
                     store(convolved + at, sum + load(bias + k));
                   });
    for (int64_t row = 0; row < pooled(stage.size.height); row++) {
      const Span down(row, stage.size.height);
      const int64_t out = n * stage.results() + row * pooled(stage.size.width) * K;
      pool_row(convolved + down.start * stage.size.width * K, stage.size.width, K, down, y + out,
               places ? places + out : nullptr);
    }
  });
}

// The backward taps are rotated by 180 degrees, with input and output channels swapped.
FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  const Stage stage(call);
  auto grad_y = call.pointer<const T>();
  auto places = call.pointer<const uint8_t>();
  auto x = call.pointer<const T>(), turned = call.pointer<const T>();
  auto grad_x = call.pointer<T>(), grad_taps = call.pointer<T>(), grad_bias = call.pointer<T>();
  const Size size = stage.size;
  Numbers buffer;
  T* points = buffer.at_least(kAllPoints);
  transform_taps(turned, C * K, points);

  const auto group = [&](int64_t begin, int64_t end, T* taps, T* bias) {
    auto& space = workspace<StageSpace>();
    T *grad = space.convolved.at_least(stage.outputs()), *sums = space.points.zeros(kAllPoints);
    for (int64_t n = begin; n < end; n++) {
      const T* grad_pooled = grad_y + n * stage.results();
      for (int64_t row = 0; row < pooled(size.height); row++)
        unpool_rows(grad_pooled, places + n * stage.results(), row, size.height, size.width, K, grad);
      add_bias_gradient<K>(stage.windows(), grad_pooled, bias);
      add_taps_gradient<C, K>(size, x + n * stage.inputs(), grad, space, AsItIs(), sums);
      T* to = grad_x + n * stage.inputs();
      convolve<K, C>(size, grad, points, space, AsItIs(),
                     [=](int64_t at, int, Part sum)
                         __attribute__((always_inline)) { store(to + at, sum); });
    }
    gather_taps(sums, C * K, taps);
  };
  stage.sum_gradients(group, grad_taps, grad_bias);
}
