// Max-pooling of pictures [count, height, width, channels] (include/pooling.h).
#include "pooling.h"

using namespace fastweights;

struct Pictures {
  int64_t count, channels, height, width, threads;

  explicit Pictures(Call& call)
      : count(call.integer()), channels(call.integer()), height(call.integer()),
        width(call.integer()), threads(call.integer()) {}

  int64_t numbers() const { return height * width * channels; }  // per picture
  int64_t results() const { return pooled(height) * pooled(width) * channels; }

  // Calls body(picture, row of windows).
  template <class Body>
  void for_each_row(Body body) const {
    const int64_t rows = pooled(height);
    parallel_for(count * rows, threads, [&](int64_t n) { body(n / rows, n % rows); });
  }
};

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  const Pictures size(call);
  auto x = call.pointer<const T>();
  auto y = call.pointer<T>();
  auto places = call.pointer<uint8_t>();
  const int64_t channels = size.channels, pitch = size.width * channels;
  size.for_each_row([&](int64_t n, int64_t row) {
    const Span down(row, size.height);
    const T* top = x + n * size.numbers() + down.start * pitch;
    const int64_t out = n * size.results() + row * pooled(size.width) * channels;
    pool_row(top, size.width, channels, down, y + out, places ? places + out : nullptr);
  });
}

FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  const Pictures size(call);
  auto grad_y = call.pointer<const T>();
  auto places = call.pointer<const uint8_t>();
  auto grad_x = call.pointer<T>();
  size.for_each_row([&](int64_t n, int64_t row) {
    unpool_rows(grad_y + n * size.results(), places + n * size.results(), row, size.height,
                size.width, size.channels, grad_x + n * size.numbers());
  });
}
