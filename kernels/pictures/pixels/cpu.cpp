// One-byte pixels [pictures, C, numbers] to numbers [pictures, numbers, C], the channels-last
// layout that a convolution reads. Pixels have no gradient.
#include "call.h"

using namespace fastweights;

template <class Number>
FW_INLINE void set(Number& number, uint8_t pixel) {
  number = Number(pixel);
}

// Integers up to 256 are exact in the upper half of a float.
template <>
FW_INLINE void set(bfloat16& number, uint8_t pixel) {
  const float exact = pixel;
  uint32_t bits;
  std::memcpy(&bits, &exact, sizeof bits);
  number.bits = uint16_t(bits >> 16);
}

// With a compile-time number of channels, the loop compiles to register shuffles.
template <int kChannels>
static FW_APART void reorder(const uint8_t* __restrict__ pixels, int64_t size, int64_t channels,
                             T* __restrict__ numbers) {
  const int64_t count = kChannels ? kChannels : channels;
  for (int64_t i = 0; i < size; i++)
    for (int64_t c = 0; c < count; c++) set(numbers[i * count + c], pixels[c * size + i]);
}

FASTWEIGHTS_FORWARD void forward(const int64_t* layout, void* const* addresses) {
  Call call(layout, addresses);
  const int64_t pictures = call.integer(), channels = call.integer(), size = call.integer();
  const int64_t threads = call.integer();
  auto pixels = call.pointer<const uint8_t>();
  auto numbers = call.pointer<T>();
  auto of_channels = channels == 1   ? reorder<1>
                     : channels == 3 ? reorder<3>
                     : channels == 4 ? reorder<4>
                                     : reorder<0>;
  parallel_for(pictures, threads, [&](int64_t n) {
    const int64_t start = n * channels * size;
    of_channels(pixels + start, size, channels, numbers + start);
  });
}

FASTWEIGHTS_BACKWARD void backward(const int64_t*, void* const*) {}
