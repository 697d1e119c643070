/* What a stage receives from its neighbours and sends to them, through host memory: the neighbour may be on
   another device, or in another process. */
#include <stdlib.h>

#include "worker/backend/cuda/engine/program.h"

/* The bytes may be anybody's host memory: the copies read them before the part ends. */
static int message_receive(struct backend_program *program, const struct cuda_step *step,
                           const struct backend_run *run, struct err *err) {
  const struct cuda_message *message = step->details;
  CHECK(run->receive);
  if (!run->receive(run->user, message->part, message->pieces))
    return err_set(err, ERR_CANCELLED, "the execution was cancelled before a neighbour's bytes came");
  for (int a = 0; a < step->n_args; a++)
    if (cuda_check(NULL,
                   cudaMemcpyAsync(step->args[a].tensor.data, message->pieces[a], message->of.sizes_bytes[a],
                                   cudaMemcpyHostToDevice, program->compute),
                   "copy what a neighbour sent", err))
      return err->code;
  return ERR_OK;
}

/* Nothing leaves of an execution in which a kernel found a fault. */
static int message_send(struct backend_program *program, const struct cuda_step *step,
                        const struct backend_run *run, struct err *err) {
  const struct cuda_message *message = step->details;
  CHECK(run->send);
  for (int a = 0; a < step->n_args; a++)
    if (cuda_check(NULL,
                   cudaMemcpyAsync((void *)message->pieces[a], step->args[a].tensor.data,
                                   message->of.sizes_bytes[a], cudaMemcpyDeviceToHost, program->compute),
                   "copy what a neighbour gets", err))
      return err->code;
  if (cuda_compute_finish(program, err))
    return err->code;
  run->send(run->user, message->part, message->pieces);
  return ERR_OK;
}

int cuda_message_run(struct backend_program *program, const struct cuda_step *step,
                     const struct backend_run *run, struct err *err) {
  return step->kind == CUDA_STEP_SEND ? message_send(program, step, run, err)
                                      : message_receive(program, step, run, err);
}

static int message_open(struct cuda_message *message, struct err *err) {
  size_t size_bytes = 0;
  for (int p = 0; p < message->of.n; p++)
    size_bytes += cuda_allocated_bytes(message->of.sizes_bytes[p]);
  if (size_bytes == 0)
    return ERR_OK;
  if (cuda_check(NULL, cudaMallocHost(&message->bytes, size_bytes), "pin memory", err))
    return err->code;
  char *at = message->bytes;
  for (int p = 0; p < message->of.n; p++) {
    message->pieces[p] = at;
    at += cuda_allocated_bytes(message->of.sizes_bytes[p]);
  }
  return ERR_OK;
}

int cuda_messages_open(struct backend_program *program, struct err *err) {
  for (enum backend_part part = BACKEND_FORWARD; part <= BACKEND_BACKWARD; part++)
    if (program->sent[part] && message_open(program->sent[part], err))
      return err->code;
  return ERR_OK;
}

void cuda_messages_close(struct backend_program *program) {
  for (enum backend_part part = BACKEND_FORWARD; part <= BACKEND_BACKWARD; part++)
    if (program->sent[part])
      cudaFreeHost(program->sent[part]->bytes);
}
