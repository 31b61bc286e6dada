// The image stem's first stage, on one-byte pixels [pictures, C, height, width] as they arrive from
// the environment. With few channels, taps are multiplied directly: transforms would cost as much.
// Pixels need no gradient. The taps' gradient needs only each window's maximum.
#include "stage.h"

using namespace fastweights;

constexpr int kLine = kTaps * C;                           // inputs of one row of taps
constexpr int kLineParts = (kLine + kLanes - 1) / kLanes;  // registers for them
constexpr int kBorders = 2;                                // pixels, left and right together

struct PixelSpace {
  Numbers frame, rows, sums;
};

// A picture with a border of zeros, channels last.
struct Frame {
  T* numbers;
  int64_t pitch;

  Frame(Size size, const uint8_t* pixels, Numbers& memory)
      : pitch((size.width + kBorders) * C) {
    numbers = memory.zeros((size.height + kBorders) * pitch + kLanes);  // line reads overrun
    for (int64_t y = 0; y < size.height; y++) {
      T* to = numbers + (y + 1) * pitch + C;
      const uint8_t* from = pixels + y * size.width;
      for (int64_t x = 0; x < size.width; x++)
        for (int c = 0; c < C; c++) to[x * C + c] = T(from[c * size.pixels() + x]);
    }
  }

  // The first input of the output at (y, x).
  const T* at(int64_t y, int64_t x) const { return numbers + y * pitch + x * C; }
};

// Computes a row of outputs [width, K].
static FW_APART void convolve_row(Size size, const Frame& frame, const T* taps, const T* bias, int64_t y,
                                  T* row) {
  constexpr int kWide = Block<K>::kWide;
  in_groups<Block<K>::kRows>(size.width, [&](int64_t x, auto N) __attribute__((always_inline)) {
    for (int k = 0; k < K; k += kWide * kLanes) {
      Part sum[N()][kWide];
      for (int n = 0; n < N(); n++)
        for (int i = 0; i < kWide; i++) sum[n][i] = load(bias + k + i * kLanes);
      for (int i = 0; i < kTaps; i++)
        add_products<K>(kLine, frame.at(y + i, x), C, 1, taps + i * kLine * K + k, sum);
      for (int n = 0; n < N(); n++)
        for (int i = 0; i < kWide; i++) store(row + (x + n) * K + k + i * kLanes, sum[n][i]);
    }
  });
}

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  const Stage stage(call);
  const Size size = stage.size;
  auto pixels = call.pointer<const uint8_t>();
  auto taps = call.pointer<const T>(), bias = call.pointer<const T>();
  auto y = call.pointer<T>();
  auto places = call.pointer<uint8_t>();

  parallel_for(stage.pictures, stage.threads, [&](int64_t n) {
    auto& space = workspace<PixelSpace>();
    const Frame frame(size, pixels + n * stage.inputs(), space.frame);
    const int64_t pitch = size.width * K;
    T* rows = space.rows.at_least(kWindow * pitch);  // the inputs of one row of windows
    for (int64_t row = 0; row < pooled(size.height); row++) {
      const Span down(row, size.height);
      std::memcpy(rows, rows + (kWindow - 1) * pitch, pitch * sizeof(T));
      for (int64_t i = 1; i < down.last; i++)
        convolve_row(size, frame, taps, bias, down.start + i, rows + i * pitch);
      const int64_t out = n * stage.results() + row * pooled(size.width) * K;
      pool_row(rows, size.width, K, down, y + out, places ? places + out : nullptr);
    }
  });
}

// sums [K, 3, kLineParts] += each window's gradient times the inputs of its maximum.
static FW_APART void add_row_of_windows(const Frame& frame, Size size, const T* grad,
                                        const uint8_t* places, int64_t row, Part* sums) {
  const int64_t columns = pooled(size.width);
  int64_t offset[kWindow * kWindow];
  for (int place = 0; place < kWindow * kWindow; place++)
    offset[place] = place / kWindow * frame.pitch + place % kWindow * C;
  const T* start = frame.at(row * kStride - 1, -1);
  for (int k = 0; k < K; k++) {
    Part sum[kTaps][kLineParts];
    std::memcpy(sum, sums + k * kTaps * kLineParts, sizeof(sum));
    for (int64_t column = 0; column < columns; column++) {
      const T* seen = start + column * kStride * C + offset[places[column * K + k]];
      const T scale = grad[column * K + k];
      for (int i = 0; i < kTaps; i++)
        for (int part = 0; part < kLineParts; part++)
          sum[i][part] += load(seen + i * frame.pitch + part * kLanes) * scale;
    }
    std::memcpy(sums + k * kTaps * kLineParts, sum, sizeof(sum));
  }
}

FASTWEIGHTS_BACKWARD void backward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  const Stage stage(call);
  auto grad_y = call.pointer<const T>();
  auto places = call.pointer<const uint8_t>();
  auto pixels = call.pointer<const uint8_t>();
  auto grad_taps = call.pointer<T>(), grad_bias = call.pointer<T>();

  const auto group = [&](int64_t begin, int64_t end, T* taps, T* bias) {
    auto& space = workspace<PixelSpace>();
    constexpr int64_t kSums = K * kTaps * kLineParts;
    T* sums = space.sums.zeros(kSums * kLanes);
    for (int64_t n = begin; n < end; n++) {
      const Frame frame(stage.size, pixels + n * stage.inputs(), space.frame);
      const T* grad = grad_y + n * stage.results();
      add_bias_gradient<K>(stage.windows(), grad, bias);
      for (int64_t row = 0; row < pooled(stage.size.height); row++) {
        const int64_t at = row * pooled(stage.size.width) * K;
        add_row_of_windows(frame, stage.size, grad + at, places + n * stage.results() + at, row,
                           reinterpret_cast<Part*>(sums));
      }
    }
    for (int64_t k = 0; k < K; k++)
      for (int64_t i = 0; i < kTaps; i++)
        for (int64_t j = 0; j < kLine; j++)
          taps[(i * kLine + j) * K + k] = sums[(k * kTaps + i) * kLineParts * kLanes + j];
  };
  stage.sum_gradients(group, grad_taps, grad_bias);
}
