/* libFuzzer's entry: `make fuzz`. Most of a file with a large tensor are its numbers, and a flipped one
   changes nothing: so mutations change what is said of the tensors, or the bytes around their data. */
#include "tests/fuzz/outline_target.h"

enum { HEAD_BYTES = 192 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t size_max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t size_max);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  outline_target(bytes, size);
  return 0;
}

/* xorshift32 */
static unsigned draw(unsigned *state, size_t n) {
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return n ? *state % (unsigned)n : 0;
}

static int64_t draw_dim(unsigned *state) {
  static const int64_t dims[] = {0,     1,     2,         3,         -1,        255,       256,      257,
                                 65535, 65536, INT32_MAX, INT64_MAX, INT64_MIN, 1LL << 32, 1LL << 48};
  return dims[draw(state, sizeof dims / sizeof *dims)];
}

/* Keys of so many pieces, of which some are none. */
static char *draw_keys(unsigned *state) {
  static const char digits[] = "0123456789abcdef0123456789abcdefAg";
  size_t length = draw(state, 5) * (SHA256_HEX_SIZE - 1) + (draw(state, 8) == 0);
  char *keys = malloc(length + 1), digit = digits[draw(state, sizeof digits - 1)];
  memset(keys, digit, length);
  keys[length] = 0;
  return keys;
}

static void mutate_dims(Onnx__TensorProto *tensor, unsigned *state) {
  if (tensor->n_dims && draw(state, 3))
    tensor->dims[draw(state, tensor->n_dims)] = draw_dim(state);
  else if (tensor->n_dims && draw(state, 2))
    tensor->n_dims--;
  else {
    tensor->dims = realloc(tensor->dims, (tensor->n_dims + 1) * sizeof *tensor->dims);
    tensor->dims[tensor->n_dims++] = draw_dim(state);
  }
}

static void mutate_tensor(Onnx__TensorProto *tensor, unsigned *state) {
  static const int types[] = {ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT,
                              ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16,
                              ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16,
                              ONNX__TENSOR_PROTO__DATA_TYPE__INT64,
                              0,
                              -1};
  switch (draw(state, 6)) {
  case 0:
    tensor->data_type = types[draw(state, sizeof types / sizeof *types)];
    break;
  case 1:
    tensor->has_raw_data = !tensor->has_raw_data;
    break;
  case 2:
    if (tensor->raw_data.len)
      tensor->raw_data.len -= 1 + draw(state, tensor->raw_data.len);
    break;
  case 3:
    tensor->has_data_location = true;
    tensor->data_location = draw(state, 2);
    break;
  case 4:
    onnx_pieces_set(tensor, draw_keys(state));
    if (draw(state, 3) == 0)
      tensor->external_data[0]->value[0] = 'x'; /* another location */
    break;
  default:
    mutate_dims(tensor, state);
  }
}

/* The bytes around the numbers: before them, or behind them. */
static size_t mutate_bytes(uint8_t *bytes, size_t size, size_t size_max, unsigned *state) {
  size_t head = size < HEAD_BYTES ? size : HEAD_BYTES;
  if (size <= 2 * HEAD_BYTES)
    return LLVMFuzzerMutate(bytes, size, size_max);
  LLVMFuzzerMutate(draw(state, 2) ? bytes : bytes + size - head, head, head);
  return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t size_max, unsigned seed) {
  unsigned state = seed | 1;
  Onnx__ModelProto *model = draw(&state, 3) ? onnx__model_proto__unpack(NULL, size, bytes) : NULL;
  size_t packed = 0;
  if (model && model->graph && model->graph->n_initializer) {
    for (unsigned n = 1 + draw(&state, 3); n > 0; n--)
      mutate_tensor(model->graph->initializer[draw(&state, model->graph->n_initializer)], &state);
    packed = onnx__model_proto__get_packed_size(model);
    if (packed <= size_max)
      onnx__model_proto__pack(model, bytes);
  }
  if (model)
    onnx__model_proto__free_unpacked(model, NULL);
  return packed && packed <= size_max ? packed : mutate_bytes(bytes, size, size_max, &state);
}
