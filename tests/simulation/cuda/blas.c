/* Of cuBLASLt, what the backend calls: products of column-major f32 and bf16 matrices, in batches, with the
   epilogues of a forward pass, as plain f32 sums in order of k. It refuses what the documentation excludes
   (types, strides, alignment, workspaces), and leaves NaN in the workspace. */
#include "tests/simulation/cuda/simulation.h"

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "tests/simulation/cuda/number.h"

enum { WORKSPACE_BYTES = 1 << 16 };

struct cublasLtContext {
  int device;
};

/* What the opaque descriptors hold. */
struct layout {
  uint32_t type;
  int32_t order;
  uint64_t rows, columns;
  int64_t ld, batch_stride;
  int32_t batch;
};

struct matmul {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transposed_a, transposed_b; /* cublasOperation_t */
  uint32_t epilogue;
  const void *bias;
  void *aux;
  int64_t aux_ld;
};

struct preference {
  uint64_t workspace_bytes;
  uint32_t reductions;
  uint32_t align_bytes[4];
};

/* What an algorithm was chosen for; the library does not check it, and fails later. */
struct algorithm {
  uint64_t shape;
  uint64_t workspace_bytes;
  uint32_t align_bytes[4];
};

_Static_assert(sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout");
_Static_assert(sizeof(struct matmul) <= sizeof(cublasLtMatmulDescOpaque_t), "matmul");
_Static_assert(sizeof(struct preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "preference");
_Static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "algorithm");

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
  if (sim_capture_forbids() || sim_device_error(sim_device()))
    return CUBLAS_STATUS_NOT_INITIALIZED;
  *out = mem_new(sizeof **out);
  (*out)->device = sim_device();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!handle)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  free(handle);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) {
  return CUBLAS_VERSION;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "success";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "the library was not initialized";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "an unsupported value or parameter was passed to the function";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "the functionality requested is not supported";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "the GPU program failed to execute";
  default:
    return "unknown error";
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t opaque, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t ld) {
  if (size < sizeof(struct layout))
    return CUBLAS_STATUS_INVALID_VALUE;
  memset(opaque, 0, sizeof *opaque);
  *(struct layout *)opaque = (struct layout){
      .type = type, .order = CUBLASLT_ORDER_COL, .rows = rows, .columns = columns, .ld = ld, .batch = 1};
  return CUBLAS_STATUS_SUCCESS;
}

struct field {
  void *at;
  size_t size;
};

static cublasStatus_t field_set(struct field field, const void *value, size_t size) {
  if (!field.at || size != field.size || !value)
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(field.at, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

#define FIELD(member) ((struct field){&(member), sizeof(member)})

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t size) {
  struct layout *it = (struct layout *)opaque;
  switch (attribute) {
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
    return field_set(FIELD(it->batch), value, size);
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
    return field_set(FIELD(it->batch_stride), value, size);
  default:
    sim_complain("attribute %d of a matrix layout is not simulated", (int)attribute);
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t opaque, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  if (size < sizeof(struct matmul))
    return CUBLAS_STATUS_INVALID_VALUE;
  memset(opaque, 0, sizeof *opaque);
  *(struct matmul *)opaque = (struct matmul){.compute = compute,
                                             .scale = scale,
                                             .transposed_a = CUBLAS_OP_N,
                                             .transposed_b = CUBLAS_OP_N,
                                             .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t size) {
  struct matmul *it = (struct matmul *)opaque;
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
    return field_set(FIELD(it->transposed_a), value, size);
  case CUBLASLT_MATMUL_DESC_TRANSB:
    return field_set(FIELD(it->transposed_b), value, size);
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    return field_set(FIELD(it->epilogue), value, size);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    return field_set(FIELD(it->bias), value, size);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    return field_set(FIELD(it->aux), value, size);
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    return field_set(FIELD(it->aux_ld), value, size);
  default:
    sim_complain("attribute %d of a matrix product is not simulated", (int)attribute);
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t opaque, size_t size) {
  if (size < sizeof(struct preference))
    return CUBLAS_STATUS_INVALID_VALUE;
  memset(opaque, 0, sizeof *opaque);
  *(struct preference *)opaque =
      (struct preference){.reductions = CUBLASLT_REDUCTION_SCHEME_MASK, .align_bytes = {256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t size) {
  struct preference *it = (struct preference *)opaque;
  switch (attribute) {
  case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    return field_set(FIELD(it->workspace_bytes), value, size);
  case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    return field_set(FIELD(it->reductions), value, size);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    return field_set(FIELD(it->align_bytes[0]), value, size);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    return field_set(FIELD(it->align_bytes[1]), value, size);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    return field_set(FIELD(it->align_bytes[2]), value, size);
  case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    return field_set(FIELD(it->align_bytes[3]), value, size);
  default:
    sim_complain("attribute %d of a preference is not simulated", (int)attribute);
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

static bool is_number(uint32_t type, enum number *out) {
  *out = type == CUDA_R_16BF ? NUMBER_BF16 : NUMBER_F32;
  return type == CUDA_R_16BF || type == CUDA_R_32F;
}

/* One product: d = epilogue(alpha a b + beta c + bias). The matrices' shapes after transposition. */
struct product {
  struct matmul matmul;
  struct layout a, b, c, d;
  enum number factor, result;
  int64_t rows, columns, inner;
};

static bool layout_is_valid(const struct layout *it) {
  return it->order == CUBLASLT_ORDER_COL && it->rows > 0 && it->columns > 0 && it->ld >= (int64_t)it->rows &&
         it->rows <= INT32_MAX && it->columns <= INT32_MAX && it->batch > 0 && it->batch <= 65535;
}

static bool epilogue_is_valid(const struct product *it) {
  switch (it->matmul.epilogue) {
  case CUBLASLT_EPILOGUE_DEFAULT:
  case CUBLASLT_EPILOGUE_RELU:
  case CUBLASLT_EPILOGUE_GELU:
    return true;
  case CUBLASLT_EPILOGUE_BIAS:
  case CUBLASLT_EPILOGUE_RELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU_BIAS:
    return it->matmul.bias != NULL;
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    return it->matmul.bias && it->matmul.aux && it->matmul.aux_ld % 8 == 0 && it->matmul.aux_ld >= it->rows;
  default:
    sim_complain("epilogue %u of a matrix product is not simulated", it->matmul.epilogue);
    return false;
  }
}

/* layouts: of a, b, c and d. */
static cublasStatus_t product_init(struct product *it, cublasLtMatmulDesc_t matmul,
                                   const cublasLtMatrixLayout_t layouts[4]) {
  enum number second, addend;
  bool is_a, is_b;
  *it = (struct product){.matmul = *(struct matmul *)matmul,
                         .a = *(struct layout *)layouts[0],
                         .b = *(struct layout *)layouts[1],
                         .c = *(struct layout *)layouts[2],
                         .d = *(struct layout *)layouts[3],
                         .factor = NUMBER_F32};
  is_a = it->matmul.transposed_a != CUBLAS_OP_N;
  is_b = it->matmul.transposed_b != CUBLAS_OP_N;
  it->rows = (int64_t)(is_a ? it->a.columns : it->a.rows);
  it->inner = (int64_t)(is_a ? it->a.rows : it->a.columns);
  it->columns = (int64_t)(is_b ? it->b.rows : it->b.columns);
  if (!layout_is_valid(&it->a) || !layout_is_valid(&it->b) || !layout_is_valid(&it->c) ||
      !layout_is_valid(&it->d) || it->inner != (int64_t)(is_b ? it->b.columns : it->b.rows) ||
      it->rows != (int64_t)it->d.rows || it->columns != (int64_t)it->d.columns || it->c.rows != it->d.rows ||
      it->c.columns != it->d.columns || it->a.batch != it->d.batch || it->b.batch != it->d.batch ||
      it->c.batch != it->d.batch)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_number(it->a.type, &it->factor) || !is_number(it->b.type, &second) ||
      !is_number(it->c.type, &addend) || !is_number(it->d.type, &it->result) || it->factor != second ||
      addend != it->result || (it->factor == NUMBER_F32 && it->result != NUMBER_F32) ||
      it->matmul.scale != CUDA_R_32F ||
      (it->matmul.compute != CUBLAS_COMPUTE_32F && it->matmul.compute != CUBLAS_COMPUTE_32F_FAST_TF32))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return epilogue_is_valid(it) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Tells one shape from another. */
static uint64_t product_key(const struct product *it) {
  const uint64_t parts[] = {it->matmul.compute,
                            (uint64_t)it->matmul.transposed_a,
                            (uint64_t)it->matmul.transposed_b,
                            it->matmul.epilogue,
                            it->a.type,
                            it->d.type,
                            (uint64_t)it->rows,
                            (uint64_t)it->columns,
                            (uint64_t)it->inner,
                            (uint64_t)it->a.ld,
                            (uint64_t)it->b.ld,
                            (uint64_t)it->d.ld,
                            (uint64_t)it->d.batch};
  uint64_t key = 14695981039346656037u;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    key = (key ^ parts[i]) * 1099511628211u;
  return key;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t opaque, int asked,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
  const struct preference *preference = (const struct preference *)opaque;
  struct product product;
  struct algorithm *algorithm;
  cublasStatus_t status;
  *found = 0;
  if (!handle || asked < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  status = product_init(&product, matmul, (const cublasLtMatrixLayout_t[]){a, b, c, d});
  if (status)
    return status;
  memset(results, 0, (size_t)asked * sizeof *results);
  algorithm = (struct algorithm *)&results[0].algo;
  algorithm->shape = product_key(&product);
  algorithm->workspace_bytes = preference->workspace_bytes < WORKSPACE_BYTES ? 0 : WORKSPACE_BYTES;
  memcpy(algorithm->align_bytes, preference->align_bytes, sizeof algorithm->align_bytes);
  results[0].workspaceSize = algorithm->workspace_bytes;
  results[0].wavesCount = 1.0f;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

struct product_op {
  struct sim_op op;
  struct product product;
  float alpha, beta;
  const void *a, *b, *c;
  void *d, *workspace;
  size_t workspace_bytes;
};

/* A factor: where its matrices lie, and how. */
struct factor {
  const struct layout *layout;
  bool is_transposed;
  const void *at;
};

/* A matrix of the batch as f32, its rows side by side: [rows][columns] of op(m). */
static float *factor_pack(const struct product *it, struct factor factor, int64_t batch) {
  const struct layout *layout = factor.layout;
  bool is_transposed = factor.is_transposed;
  bool is_tf32 = it->matmul.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  int64_t rows = (int64_t)(is_transposed ? layout->columns : layout->rows);
  int64_t columns = (int64_t)(is_transposed ? layout->rows : layout->columns);
  int64_t down = is_transposed ? layout->ld : 1, across = is_transposed ? 1 : layout->ld;
  float *out = malloc((size_t)(rows * columns) * sizeof *out);
  for (int64_t i = 0; out && i < rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      float x = number_load(it->factor, factor.at, batch * layout->batch_stride + i * down + j * across);
      out[i * columns + j] = is_tf32 ? number_to_tf32(x) : x;
    }
  return out;
}

static float gelu(float x) {
  return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float finish(const struct product_op *op, int64_t batch, int64_t i, int64_t j, float sum) {
  const struct product *it = &op->product;
  uint32_t epilogue = it->matmul.epilogue;
  float x = op->alpha * sum;
  if (op->beta != 0.0f)
    x += op->beta * number_load(it->result, op->c, batch * it->c.batch_stride + j * it->c.ld + i);
  if (epilogue & CUBLASLT_EPILOGUE_BIAS)
    x += number_load(it->result, it->matmul.bias, i);
  if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
    number_store(it->result, it->matmul.aux, j * it->matmul.aux_ld + i, x);
  if (epilogue & CUBLASLT_EPILOGUE_RELU)
    x = x > 0.0f || isnan(x) ? x : 0.0f;
  return epilogue & CUBLASLT_EPILOGUE_GELU ? gelu(x) : x;
}

/* False: out of memory. */
static bool multiply(const struct product_op *op, int64_t batch) {
  const struct product *it = &op->product;
  struct factor left = {&it->a, it->matmul.transposed_a != CUBLAS_OP_N, op->a};
  struct factor right = {&it->b, it->matmul.transposed_b != CUBLAS_OP_N, op->b};
  float *a = factor_pack(it, left, batch), *b = factor_pack(it, right, batch);
  float *sums = malloc((size_t)it->columns * sizeof *sums);
  bool is_well = a && b && sums;
  for (int64_t i = 0; is_well && i < it->rows; i++) {
    memset(sums, 0, (size_t)it->columns * sizeof *sums);
    for (int64_t k = 0; k < it->inner; k++) {
      float x = a[i * it->inner + k];
      const float *row = b + k * it->columns;
      for (int64_t j = 0; j < it->columns; j++)
        sums[j] += x * row[j];
    }
    for (int64_t j = 0; j < it->columns; j++)
      number_store(it->result, op->d, batch * it->d.batch_stride + j * it->d.ld + i,
                   finish(op, batch, i, j, sums[j]));
  }
  free(a);
  free(b);
  free(sums);
  return is_well;
}

static enum sim_progress product_run(struct sim_op *op, void **state, int device) {
  struct product_op *it = (struct product_op *)op;
  (void)state;
  memset(it->workspace, 0xff, it->workspace_bytes);
  for (int32_t batch = 0; batch < it->product.d.batch; batch++)
    if (!multiply(it, batch))
      sim_device_lose(device, cudaErrorUnknown, "memory of the host");
  return SIM_DONE;
}

/* Of what the call may not do, though no result of the choice of an algorithm tells it. */
static bool call_is_valid(const struct product_op *op, const struct algorithm *algorithm) {
  const void *const ends[] = {op->a, op->b, op->c, op->d};
  if (!algorithm || algorithm->shape != product_key(&op->product) ||
      algorithm->workspace_bytes > op->workspace_bytes)
    return false;
  for (int i = 0; i < 4; i++)
    if (!sim_is_any_device(ends[i]) || (uintptr_t)ends[i] % algorithm->align_bytes[i])
      return false;
  return op->workspace_bytes == 0 ||
         (sim_is_device(op->workspace, op->workspace_bytes) && (uintptr_t)op->workspace % 16 == 0);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t matmul, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  struct product_op *op = sim_op_new(sizeof *op, "cublasLtMatmul", product_run);
  cublasStatus_t status = product_init(
      &op->product, matmul, (const cublasLtMatrixLayout_t[]){a_layout, b_layout, c_layout, d_layout});
  op->op.is_work = true;
  op->alpha = *(const float *)alpha;
  op->beta = *(const float *)beta;
  op->a = a;
  op->b = b;
  op->c = c;
  op->d = d;
  op->workspace = workspace;
  op->workspace_bytes = workspace_bytes;
  stream = sim_stream_of(stream);
  if (!status && (!handle || handle->device != stream->device || handle->device != sim_device() ||
                  !call_is_valid(op, (const struct algorithm *)algorithm)))
    status = CUBLAS_STATUS_INVALID_VALUE;
  if (status) {
    sim_complain("cublasLtMatmul: %s", cublasLtGetStatusString(status));
    sim_op_put(&op->op);
    return status;
  }
  return sim_enqueue(stream, &op->op) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
