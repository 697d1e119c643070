/* The interpreter of elementwise chains.

   Traffic: each input is read once for every instruction that names it (again from L1 where that is twice),
   each output written once; nothing else touches memory but the chain itself, which lies in constant memory.
   Thread t takes elements 8t to 8t + 7 by 16-byte loads: a warp reads 256 neighbouring elements, 512 bytes of
   bf16 or 1024 of f32, in whole 128-byte lines. Operands that are broadcast along the rows are read just so;
   those that stay the same for eight neighbours are read once for them. All threads of a grid are at the same
   instruction, so that its switch costs a uniform branch for eight elements. */
#include "worker/backend/cuda/pointwise/pointwise.h"

#include <math.h>

#include "worker/backend/cuda/engine/device.h"
#include "worker/backend/cuda/pointwise/lanes.cuh"
#include "worker/backend/cuda/pointwise/random.cuh"
#include "worker/backend/cuda/pointwise/real.cuh"

/* Chains of integers are short and few: an element at a time. */
struct integer_lanes {
  int64_t at[1];
};

/* The present elements of a thread: i to i + n - 1. */
struct lanes {
  int64_t i;
  int n;
};

static __device__ int64_t strided_place(const struct pointwise *chain, const struct pointwise_input *in,
                                        int64_t i) {
  int64_t place = 0;
  for (int d = chain->rank - 1; d > 0; d--)
    place += cuda_digit(&chain->dim[d], &i) * in->stride[d];
  return place + i * in->stride[0];
}

static __device__ int64_t place_of(const struct pointwise *chain, const struct pointwise_input *in,
                                   int64_t i) {
  switch (in->place) {
  case AT_SAME:
    return i;
  case AT_ONE:
    return 0;
  case AT_STRIDED:
    return strided_place(chain, in, i);
  default:
    i = cuda_divide(&in->divide, i);
    return i - cuda_divide(&in->period, i) * in->period.by;
  }
}

/* The places of the lanes; those behind the last element get its place. Returns true if they lie side by
   side. */
static __device__ bool lane_places(const struct pointwise *chain, const struct pointwise_input *in,
                                   const struct lanes *lanes, int64_t places[POINTWISE_LANES]) {
  places[0] = place_of(chain, in, lanes->i);
  if (lanes->n == POINTWISE_LANES && (in->place == AT_SAME || in->place == AT_ROW))
    return true;
  for (int k = 1; k < POINTWISE_LANES; k++) {
    if (in->place == AT_ONE || in->place == AT_BLOCK || k >= lanes->n)
      places[k] = places[k - 1];
    else
      places[k] = place_of(chain, in, lanes->i + k);
  }
  return false;
}

static __device__ float read_real(const struct pointwise_input *in, int64_t place) {
  switch (in->type) {
  case CUDA_BF16:
    return cuda_from_bf16(((const uint16_t *)in->data)[place]);
  case CUDA_I32:
    return (float)((const int32_t *)in->data)[place];
  case CUDA_I64:
    return (float)((const int64_t *)in->data)[place];
  case CUDA_U8:
    return (float)((const uint8_t *)in->data)[place];
  default:
    return ((const float *)in->data)[place];
  }
}

static __device__ int64_t read_integer(const struct pointwise_input *in, int64_t place) {
  switch (in->type) {
  case CUDA_I32:
    return ((const int32_t *)in->data)[place];
  case CUDA_I64:
    return ((const int64_t *)in->data)[place];
  default:
    return ((const uint8_t *)in->data)[place];
  }
}

static __device__ struct real_lanes read_reals(const struct pointwise *chain,
                                               const struct pointwise_input *in, const struct lanes *lanes) {
  int64_t places[POINTWISE_LANES];
  struct real_lanes x;
  bool is_side_by_side = lane_places(chain, in, lanes, places);
  if (is_side_by_side && in->type == CUDA_F32) {
    const uint4 *from = (const uint4 *)((const float *)in->data + places[0]);
    return lanes_of_f32(from[0], from[1]);
  }
  if (is_side_by_side && in->type == CUDA_BF16)
    return lanes_of_bf16(*(const uint4 *)((const uint16_t *)in->data + places[0]));
  EACH_LANE(k) x.at[k] = read_real(in, is_side_by_side ? places[0] + k : places[k]);
  return x;
}

static __device__ struct integer_lanes
read_integers(const struct pointwise *chain, const struct pointwise_input *in, const struct lanes *lanes) {
  struct integer_lanes x = {{read_integer(in, place_of(chain, in, lanes->i))}};
  return x;
}

/* Conversions of reals that do not fit give the nearest that does, and 0 for what is not a number. */
static __device__ int64_t integer_of(float x, double least, double greatest) {
  double wide = x;
  if (wide != wide)
    return 0;
  if (wide <= least)
    return (int64_t)least;
  return wide >= greatest + 1.0 ? (greatest > 0x1p62 ? INT64_MAX : (int64_t)greatest) : (int64_t)wide;
}

static __device__ void write_real(void *data, enum cuda_type type, int64_t i, float x) {
  switch (type) {
  case CUDA_BF16:
    ((uint16_t *)data)[i] = cuda_to_bf16(x);
    break;
  case CUDA_I32:
    ((int32_t *)data)[i] = (int32_t)integer_of(x, -0x1p31, 0x1p31 - 1.0);
    break;
  case CUDA_I64:
    ((int64_t *)data)[i] = integer_of(x, -0x1p63, 0x1p63);
    break;
  case CUDA_U8:
    ((uint8_t *)data)[i] = (uint8_t)integer_of(x, 0.0, 255.0);
    break;
  default:
    ((float *)data)[i] = x;
  }
}

static __device__ void write_reals(void *data, enum cuda_type type, const struct lanes *lanes,
                                   const struct real_lanes *x) {
  if (lanes->n == POINTWISE_LANES && (type == CUDA_F32 || type == CUDA_BF16)) {
    write_lanes(data, type, lanes->i, x);
  } else {
    EACH_LANE(k)
    if (k < lanes->n)
      write_real(data, type, lanes->i + k, x->at[k]);
  }
}

static __device__ void write_integers(void *data, enum cuda_type type, const struct lanes *lanes,
                                      const struct integer_lanes *x) {
  if (type == CUDA_I32)
    ((int32_t *)data)[lanes->i] = (int32_t)x->at[0];
  else if (type == CUDA_I64)
    ((int64_t *)data)[lanes->i] = x->at[0];
  else
    ((uint8_t *)data)[lanes->i] = (uint8_t)x->at[0];
}

static __device__ int64_t wrapped_add(int64_t x, int64_t y) {
  return (int64_t)((uint64_t)x + (uint64_t)y);
}

static __device__ int64_t wrapped_mul(int64_t x, int64_t y) {
  return (int64_t)((uint64_t)x * (uint64_t)y);
}

static __device__ int64_t wrapped_neg(int64_t x) {
  return (int64_t)(0 - (uint64_t)x);
}

static __device__ int64_t integer_mod(int64_t x, int64_t y) {
  return y == 0 || y == -1 ? 0 : x % y;
}

static __device__ int64_t integer_floor_mod(int64_t x, int64_t y) {
  int64_t r = integer_mod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* Reciprocals are cut to 0; that of 0 is 0, too. */
static __device__ int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t power = 1;
  if (exponent < 0 && base != 1 && base != -1)
    return 0;
  for (exponent = exponent < 0 ? exponent & 1 : exponent; exponent > 0; exponent >>= 1) {
    if (exponent & 1)
      power = wrapped_mul(power, base);
    base = wrapped_mul(base, base);
  }
  return power;
}

#define REAL(name, reads, attrs, expression)
#define INTEGER(name, reads, expression)                                                                     \
  static __device__ inline int64_t integer_##name(int64_t x, int64_t y, int64_t z) {                         \
    (void)x, (void)y, (void)z;                                                                               \
    return expression;                                                                                       \
  }
#include "worker/backend/cuda/pointwise/pointwise.def"
#undef REAL
#undef INTEGER

#define INTEGER(name, reads, expression)
#define REAL(name, reads, attrs, expression)                                                                 \
  case REAL_##name:                                                                                          \
    EACH_LANE(k) result.at[k] = real_##name(x->at[k], y->at[k], z->at[k], a, b);                             \
    break;

/* Whether each element of the node is kept that drops a part x of them. */
static __device__ struct real_lanes real_draw(const struct pointwise *chain, const struct lanes *lanes,
                                              int node, const struct real_lanes *x) {
  uint64_t key = cuda_random_key(chain->context, node);
  struct real_lanes result;
  EACH_LANE(k) {
    int64_t i = lanes->i + k;
    if (chain->is_channels_last) {
      int64_t sample = i, channel = cuda_digit(&chain->channels, &sample);
      int64_t place = cuda_digit(&chain->plane, &sample);
      i = (sample * chain->channels.by + channel) * chain->plane.by + place;
    }
    result.at[k] = cuda_uniform(key, i) >= x->at[k] ? 1.0f : 0.0f;
  }
  return result;
}

static __device__ struct real_lanes compute_reals(const struct pointwise_instruction *instruction,
                                                  const struct real_lanes *x, const struct real_lanes *y,
                                                  const struct real_lanes *z) {
  float a = instruction->alpha, b = instruction->beta;
  struct real_lanes result = *x;
  switch (instruction->op) {
#include "worker/backend/cuda/pointwise/pointwise.def"
  default:
    break;
  }
  return result;
}
#undef REAL
#undef INTEGER

#define REAL(name, reads, attrs, expression)
#define INTEGER(name, reads, expression)                                                                     \
  case INTEGER_##name:                                                                                       \
    result = integer_##name(x->at[0], y->at[0], z->at[0]);                                                   \
    break;

static __device__ struct integer_lanes compute_integers(const struct pointwise_instruction *instruction,
                                                        const struct integer_lanes *x,
                                                        const struct integer_lanes *y,
                                                        const struct integer_lanes *z) {
  int64_t result = x->at[0];
  switch (instruction->op) {
#include "worker/backend/cuda/pointwise/pointwise.def"
  default:
    break;
  }
  if (instruction->type == CUDA_I32)
    result = (int32_t)result;
  else if (instruction->type == CUDA_U8)
    result = (uint8_t)result;
  struct integer_lanes one = {{result}};
  return one;
}
#undef REAL
#undef INTEGER

static __device__ void check_divisor(const struct pointwise *chain,
                                     const struct pointwise_instruction *instruction, int64_t i,
                                     int64_t divisor) {
  int op = instruction->op, from = instruction->from[1];
  if ((op == INTEGER_Div || op == INTEGER_FloorMod || op == INTEGER_Fmod) && divisor == 0)
    cuda_fault_set(chain->fault, instruction->node, 0,
                   from < OPERAND_REGISTER ? place_of(chain, &chain->inputs[from], i) : i);
}

static __device__ void fill_integers(struct integer_lanes *lanes, int64_t x) {
  lanes->at[0] = x;
}

/* Operand o of the instruction, into `lanes_of`, which is left as it is where there is none. */
#define READ_OPERAND(lanes_of, o, member, read, fill)                                                        \
  do {                                                                                                       \
    int from = instruction->from[o];                                                                         \
    if (from < OPERAND_REGISTER)                                                                             \
      lanes_of = read(chain, &chain->inputs[from], lanes);                                                   \
    else if (from < OPERAND_LAST)                                                                            \
      lanes_of = registers[from - OPERAND_REGISTER];                                                         \
    else if (from == OPERAND_LAST)                                                                           \
      lanes_of = last;                                                                                       \
    else if (from == OPERAND_IMMEDIATE)                                                                      \
      fill(&lanes_of, instruction->immediate.member);                                                        \
  } while (0)

/* The same loop for both kinds of registers; `result` is of x, y and z. */
#define RUN_CHAIN(kind, member, read, fill, result, write)                                                   \
  struct kind registers[POINTWISE_REGISTERS], last = {}, x = {}, y = {}, z = {};                             \
  for (int n = 0; n < chain->n_instructions; n++) {                                                          \
    const struct pointwise_instruction *instruction = &chain->instructions[n];                               \
    READ_OPERAND(x, 0, member, read, fill);                                                                  \
    READ_OPERAND(y, 1, member, read, fill);                                                                  \
    READ_OPERAND(z, 2, member, read, fill);                                                                  \
    last = result;                                                                                           \
    if (instruction->to < POINTWISE_REGISTERS)                                                               \
      registers[instruction->to] = last;                                                                     \
    if (instruction->output < POINTWISE_OUTPUTS_MAX)                                                         \
      write(chain->outputs[instruction->output].data, chain->outputs[instruction->output].type, lanes,       \
            &last);                                                                                          \
  }

static __device__ void run_reals(const struct pointwise *chain, const struct lanes *lanes) {
  RUN_CHAIN(real_lanes, real, read_reals, fill_lanes,
            instruction->op == REAL_Draw ? real_draw(chain, lanes, instruction->node, &x)
                                         : compute_reals(instruction, &x, &y, &z),
            write_reals)
}

static __device__ void run_integers(const struct pointwise *chain, const struct lanes *lanes) {
  RUN_CHAIN(integer_lanes, integer, read_integers, fill_integers,
            (check_divisor(chain, instruction, lanes->i, y.at[0]), compute_integers(instruction, &x, &y, &z)),
            write_integers)
}

static __global__ void real_kernel(struct pointwise chain) {
  int64_t groups = (chain.elems + POINTWISE_LANES - 1) / POINTWISE_LANES;
  for (int64_t g = CUDA_FIRST; g < groups; g += CUDA_STRIDE) {
    int64_t i = g * POINTWISE_LANES, left = chain.elems - i;
    struct lanes lanes = {i, left < POINTWISE_LANES ? (int)left : POINTWISE_LANES};
    run_reals(&chain, &lanes);
  }
}

static __global__ void integer_kernel(struct pointwise chain) {
  for (int64_t i = CUDA_FIRST; i < chain.elems; i += CUDA_STRIDE) {
    struct lanes lanes = {i, 1};
    run_integers(&chain, &lanes);
  }
}

void cuda_pointwise_launch(const struct pointwise *chain, cudaStream_t stream) {
  int64_t groups = (chain->elems + POINTWISE_LANES - 1) / POINTWISE_LANES;
  if (chain->is_integer)
    CUDA_LAUNCH(integer_kernel, cuda_blocks(chain->elems), CUDA_THREADS, stream, *chain);
  else
    CUDA_LAUNCH(real_kernel, cuda_blocks(groups), CUDA_THREADS, stream, *chain);
}
