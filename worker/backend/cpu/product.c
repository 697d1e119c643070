/* Products of matrices at addresses that a step chooses: oneDNN's matmul, made once for its shape. */
#include "worker/backend/cpu/product.h"

enum { OPERANDS = 3 };

struct cpu_product {
  struct cpu_product *next; /* of the program's */
  dnnl_primitive_t primitive;
  dnnl_exec_arg_t args[OPERANDS];
};

/* oneDNN's fast kernels know matrices whose rows take turns in four dimensions only. The first one has one
   element, so nothing ever steps by its stride. */
static dnnl_memory_desc_t view_layout(int64_t stack, const struct product_view *view, dnnl_data_type_t type) {
  dnnl_memory_desc_t layout;
  const dnnl_dims_t dims = {1, stack, view->rows, view->columns};
  const dnnl_dims_t strides = {stack * view->rows * view->columns, view->stack_stride, view->row_stride,
                               view->column_stride};
  CHECK(dnnl_memory_desc_init_by_strides(&layout, 4, dims, type, strides) == dnnl_success);
  return layout;
}

static dnnl_status_t set_attr(dnnl_primitive_attr_t *attr, float alpha, bool adds) {
  dnnl_post_ops_t post = NULL;
  dnnl_status_t status = dnnl_primitive_attr_create(attr);
  if (!status && alpha != 1)
    status = dnnl_primitive_attr_set_output_scales(*attr, 1, 0, &alpha);
  if (!status && adds)
    status = dnnl_post_ops_create(&post);
  if (!status && adds)
    status = dnnl_post_ops_append_sum(post, 1);
  if (!status && adds)
    status = dnnl_primitive_attr_set_post_ops(*attr, post);
  if (post)
    dnnl_post_ops_destroy(post);
  return status;
}

static dnnl_status_t primitive_make(struct backend_program *program, struct cpu_product *product,
                                    const struct cpu_product_shape *shape,
                                    const dnnl_memory_desc_t *layouts) {
  dnnl_matmul_desc_t matmul;
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t desc = NULL;
  dnnl_status_t status = set_attr(&attr, shape->alpha, shape->adds);
  if (!status)
    status = dnnl_matmul_desc_init(&matmul, &layouts[0], &layouts[1], NULL, &layouts[2]);
  if (!status)
    status = dnnl_primitive_desc_create(&desc, &matmul, attr, program->engine, NULL);
  if (!status && shape->factors != dnnl_f32 && cpu_rank(desc) == CPU_RANK_REFERENCE)
    status = dnnl_unimplemented;
  if (!status)
    status = dnnl_primitive_create(&product->primitive, desc);
  if (desc)
    dnnl_primitive_desc_destroy(desc);
  if (attr)
    dnnl_primitive_attr_destroy(attr);
  for (int i = 0; i < OPERANDS && !status; i++)
    status = dnnl_memory_create(&product->args[i].memory, &layouts[i], program->engine, DNNL_MEMORY_NONE);
  return status;
}

struct cpu_product *cpu_product_new(struct backend_program *program, const struct cpu_product_shape *shape) {
  struct cpu_product *product = arena_new(&program->memory, sizeof *product);
  const dnnl_memory_desc_t layouts[OPERANDS] = {view_layout(shape->stack, &shape->a, shape->factors),
                                                view_layout(shape->stack, &shape->b, shape->factors),
                                                view_layout(shape->stack, &shape->out, shape->result)};
  static const int ids[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  product->next = program->products;
  program->products = product;
  for (int i = 0; i < OPERANDS; i++)
    product->args[i].arg = ids[i];
  return primitive_make(program, product, shape, layouts) ? NULL : product;
}

bool cpu_product_run(const struct backend_program *program, const struct cpu_product *product, const void *a,
                     const void *b, void *out) {
  void *const data[OPERANDS] = {(void *)a, (void *)b, out};
  for (int i = 0; i < OPERANDS; i++)
    if (dnnl_memory_set_data_handle(product->args[i].memory, data[i]))
      return false;
  return dnnl_primitive_execute(product->primitive, program->stream, OPERANDS, product->args) == dnnl_success;
}

void cpu_products_release(struct backend_program *program) {
  for (const struct cpu_product *product = program->products; product; product = product->next) {
    for (int i = 0; i < OPERANDS; i++)
      if (product->args[i].memory)
        dnnl_memory_destroy(product->args[i].memory);
    if (product->primitive)
      dnnl_primitive_destroy(product->primitive);
  }
}
