#include "tests/support/common/optimizer_numbers.h"

float made_up_weight(int i) {
  return (float)((i % 2 ? -1 : 1) * (0.5 + i * 7 % 16 / 8.0));
}

float made_up_gradient(int step, int i) {
  return (float)(((i * 29 + step * 53 + 7) % 64 - 31.5) / 32 / (1 << i % 6));
}
