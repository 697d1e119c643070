/* libFuzzer's entry: `make fuzz`. */
#include <zlib.h>

#include "tests/fuzz/data_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t most, unsigned seed);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  data_target("image", bytes, size);
  return 0;
}

static uint32_t big_endian(const uint8_t *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* The check sums of a PNG's chunks are made right: behind wrong ones nothing would be reached. */
static void repair_png(uint8_t *bytes, size_t size) {
  for (size_t at = 8; at + 12 <= size;) {
    size_t length = big_endian(bytes + at);
    uint32_t sum;
    if (length > size - at - 12)
      return;
    sum = (uint32_t)crc32(0, bytes + at + 4, (unsigned)length + 4);
    for (int i = 0; i < 4; i++)
      bytes[at + 8 + length + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    at += length + 12;
  }
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(bytes, size, most);
  if (seed % 8 && size > 8 && memcmp(bytes, "\x89PNG", 4) == 0)
    repair_png(bytes, size);
  return size;
}
