/* Passes over rows of class scores as steps. */
#include "worker/backend/cuda/loss/class_rows.h"

struct cuda_class_step cuda_class_step_of(const struct backend_program *program, const struct node *node) {
  return (struct cuda_class_step){
      .pass = {.node = node->index, .fault = cuda_view(program)->fault},
      .scores = -1,
      .labels = -1,
      .targets = -1,
      .gradient = -1,
      .log_prob = -1,
      .row_loss = -1,
      .weights = -1,
      .dsum = -1,
      .sums = -1,
      .out = {-1, -1, -1, -1},
  };
}

void cuda_class_pass_plan(struct cuda_class_pass *pass) {
  int64_t teams;
  pass->lanes = pass->is_of_labels ? 1 : cuda_rows_lanes(&pass->rows);
  teams = ROWS_BLOCK / pass->lanes;
  pass->blocks = (pass->rows.rows + teams - 1) / teams;
  pass->blocks = pass->blocks < CLASS_BLOCKS_MAX ? pass->blocks : CLASS_BLOCKS_MAX;
}

void cuda_class_step_plan(struct backend_program *program, struct cuda_step *step,
                          struct cuda_class_step *own) {
  bool has_sums = false;
  cuda_class_pass_plan(&own->pass);
  for (int i = 0; i < CLASS_SUMS; i++)
    has_sums |= own->out[i] >= 0;
  if (has_sums)
    own->sums = cuda_scratch(program, step, (size_t)own->pass.blocks * CLASS_SUMS * sizeof(double));
}

int cuda_class_step_sum(const struct cuda_class_step *own, const struct cuda_step *step, int64_t parts,
                        cudaStream_t stream, struct err *err) {
  struct cuda_loss_sums sums = {
      .sums = cuda_arg_tensor(step, own->sums).data, .parts = parts, .is_mean = own->is_mean};
  for (int i = 0; i < CLASS_SUMS; i++)
    sums.out[i] = cuda_arg_tensor(step, own->out[i]);
  cuda_loss_sums_launch(&sums, stream);
  return cuda_check(step->node, cudaGetLastError(), "add up losses", err);
}

int cuda_class_step_enqueue(const struct cuda_class_step *own, const struct cuda_step *step,
                            cudaStream_t stream, struct err *err) {
  struct cuda_class_pass pass = own->pass;
  pass.scores = cuda_arg_tensor(step, own->scores);
  pass.labels = cuda_arg_tensor(step, own->labels);
  pass.targets = cuda_arg_tensor(step, own->targets);
  pass.gradient = cuda_arg_tensor(step, own->gradient);
  pass.log_prob = cuda_arg_tensor(step, own->log_prob);
  pass.row_loss = cuda_arg_tensor(step, own->row_loss);
  pass.weights = cuda_arg_tensor(step, own->weights).data;
  pass.dsum = cuda_arg_tensor(step, own->dsum).data;
  pass.sums = cuda_arg_tensor(step, own->sums).data;
  cuda_class_pass_launch(&pass, stream);
  if (cuda_check(step->node, cudaGetLastError(), "pass over scores", err))
    return err->code;
  return own->sums < 0 ? ERR_OK : cuda_class_step_sum(own, step, own->pass.blocks, stream, err);
}

static int enqueue_class_rows(struct backend_program *program, const struct cuda_step *step,
                              cudaStream_t stream, struct err *err) {
  (void)program;
  return cuda_class_step_enqueue(step->details, step, stream, err);
}

void cuda_class_step_end(struct backend_program *program, struct cuda_step *step,
                         const struct cuda_class_step *own) {
  step->details = arena_copy(cuda_view(program)->memory, own, sizeof *own);
  step->enqueue = enqueue_class_rows;
  cuda_step_end(program, step);
}
