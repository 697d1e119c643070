/* The neighbouring elements that a thread computes, 16 bytes at a time. */
#ifndef WEIR_WORKER_BACKEND_CUDA_POINTWISE_LANES_CUH
#define WEIR_WORKER_BACKEND_CUDA_POINTWISE_LANES_CUH

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/pointwise/pointwise.h"

struct real_lanes {
  float at[POINTWISE_LANES];
};

#define EACH_LANE(k) for (int k = 0; k < POINTWISE_LANES; k++)

static __device__ inline void fill_lanes(struct real_lanes *lanes, float x) {
  EACH_LANE(k) lanes->at[k] = x;
}

static __device__ inline struct real_lanes lanes_of_f32(uint4 first, uint4 second) {
  unsigned bits[] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  struct real_lanes lanes;
  EACH_LANE(k) lanes.at[k] = __uint_as_float(bits[k]);
  return lanes;
}

static __device__ inline struct real_lanes lanes_of_bf16(uint4 eight) {
  unsigned pairs[] = {eight.x, eight.y, eight.z, eight.w};
  struct real_lanes lanes;
  EACH_LANE(k) lanes.at[k] = __uint_as_float(k % 2 ? pairs[k / 2] & 0xffff0000u : pairs[k / 2] << 16);
  return lanes;
}

/* Elements i to i + POINTWISE_LANES - 1 of an F32 or BF16 tensor. */
static __device__ inline void write_lanes(void *data, enum cuda_type type, int64_t i,
                                          const struct real_lanes *x) {
  if (type == CUDA_F32) {
    float4 *to = (float4 *)((float *)data + i);
    for (int v = 0; v < POINTWISE_LANES / 4; v++) {
      float4 four = {x->at[4 * v], x->at[4 * v + 1], x->at[4 * v + 2], x->at[4 * v + 3]};
      to[v] = four;
    }
  } else {
    uint4 eight = {cuda_to_bf16_pair(x->at[0], x->at[1]), cuda_to_bf16_pair(x->at[2], x->at[3]),
                   cuda_to_bf16_pair(x->at[4], x->at[5]), cuda_to_bf16_pair(x->at[6], x->at[7])};
    *(uint4 *)((uint16_t *)data + i) = eight;
  }
}

#endif
