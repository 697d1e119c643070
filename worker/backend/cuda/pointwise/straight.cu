/* Chains of one instruction that models spend their time in: kernels of their own, without the interpreter's
   registers, so that enough threads are under way to hide what memory takes.

   Traffic: each input is read once, the output written once, 16 bytes at a time. A thread asks for all its
   operands before it waits for one. */
#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/pointwise/lanes.cuh"
#include "worker/backend/cuda/pointwise/pointwise.h"
#include "worker/backend/cuda/pointwise/real.cuh"

/* Blocks of a multiprocessor, so that it has more than 20 KiB under way: what the memory of a GPU takes from
   the request to the data at its full speed. */
#define STRAIGHT_BLOCKS(operands) ((operands) == 1 ? 8 : 5)

/* Of one operand, as they lie in memory: 8 reals of 2 or 4 bytes, or 8 bytes (first.x and y), or one element
   for all lanes (first.x). Nothing else is set, and all is as it was read: more would wait for what is under
   way. */
struct lane_bits {
  uint4 first, second;
};

static __device__ inline int first_place(const struct pointwise_input *in, int i) {
  if (in->place == AT_SAME)
    return i;
  if (in->place == AT_ONE)
    return 0;
  i = cuda_divide_int(&in->divide, i);
  return i - cuda_divide_int(&in->period, i) * (int)in->period.by;
}

static __device__ inline void fetch_one(const struct pointwise_input *in, int place, struct lane_bits *bits) {
  if (in->type == CUDA_BF16)
    bits->first.x = ((const uint16_t *)in->data)[place];
  else if (in->type == CUDA_F32)
    bits->first.x = ((const uint32_t *)in->data)[place];
  else
    bits->first.x = ((const uint8_t *)in->data)[place];
}

static __device__ inline void fetch(const struct pointwise *chain, int from, int i, struct lane_bits *bits) {
  if (from >= OPERAND_REGISTER)
    return;
  const struct pointwise_input *in = &chain->inputs[from];
  int place = first_place(in, i);
  if (in->place == AT_ONE || in->place == AT_BLOCK) {
    fetch_one(in, place, bits);
  } else if (in->type == CUDA_BF16) {
    bits->first = *(const uint4 *)((const uint16_t *)in->data + place);
  } else if (in->type == CUDA_F32) {
    const uint4 *data = (const uint4 *)((const float *)in->data + place);
    bits->first = data[0], bits->second = data[1];
  } else {
    const uint2 *data = (const uint2 *)((const uint8_t *)in->data + place);
    bits->first.x = data->x, bits->first.y = data->y;
  }
}

static __device__ inline float unpack_one(const struct pointwise_input *in, unsigned one) {
  if (in->type == CUDA_BF16)
    return cuda_from_bf16((uint16_t)one);
  return in->type == CUDA_F32 ? __uint_as_float(one) : (float)one;
}

static __device__ inline struct real_lanes unpack(const struct pointwise *chain, int from,
                                                  const struct lane_bits *bits) {
  struct real_lanes lanes = {};
  if (from >= OPERAND_REGISTER) {
    if (from == OPERAND_IMMEDIATE)
      fill_lanes(&lanes, chain->instructions[0].immediate.real);
    return lanes;
  }
  const struct pointwise_input *in = &chain->inputs[from];
  if (in->place == AT_ONE || in->place == AT_BLOCK)
    fill_lanes(&lanes, unpack_one(in, bits->first.x));
  else if (in->type == CUDA_BF16)
    lanes = lanes_of_bf16(bits->first);
  else if (in->type == CUDA_F32)
    lanes = lanes_of_f32(bits->first, bits->second);
  else
    EACH_LANE(k) lanes.at[k] = (float)((k < 4 ? bits->first.x : bits->first.y) >> k % 4 * 8 & 255u);
  return lanes;
}

#define STRAIGHT(name, operands)                                                                             \
  static __global__ void __launch_bounds__(CUDA_THREADS, STRAIGHT_BLOCKS(operands))                          \
      straight_##name(struct pointwise chain) {                                                              \
    const struct pointwise_instruction *instruction = &chain.instructions[0];                                \
    int from_x = instruction->from[0], from_y = instruction->from[1];                                        \
    for (int64_t g = CUDA_FIRST; g < chain.elems / POINTWISE_LANES; g += CUDA_STRIDE) {                      \
      int i = (int)g * POINTWISE_LANES;                                                                      \
      struct lane_bits bits_x, bits_y;                                                                       \
      fetch(&chain, from_x, i, &bits_x);                                                                     \
      fetch(&chain, from_y, i, &bits_y);                                                                     \
      struct real_lanes x = unpack(&chain, from_x, &bits_x), y = unpack(&chain, from_y, &bits_y);            \
      EACH_LANE(k)                                                                                           \
      x.at[k] = real_##name(x.at[k], y.at[k], 0.0f, instruction->alpha, instruction->beta);                  \
      write_lanes(chain.outputs[0].data, chain.outputs[0].type, i, &x);                                      \
    }                                                                                                        \
  }
POINTWISE_STRAIGHT(STRAIGHT)
#undef STRAIGHT

#define STRAIGHT(name, operands)                                                                             \
  case REAL_##name:                                                                                          \
    CUDA_LAUNCH(straight_##name, cuda_blocks(chain->elems / POINTWISE_LANES), CUDA_THREADS, stream, *chain); \
    break;
void cuda_straight_launch(const struct pointwise *chain, cudaStream_t stream) {
  switch (chain->instructions[0].op) { POINTWISE_STRAIGHT(STRAIGHT) }
}
