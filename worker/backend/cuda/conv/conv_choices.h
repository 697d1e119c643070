/* Which of cuDNN's algorithms convolutions take, remembered for the life of the process: cuDNN takes many
   milliseconds to rank them, and the same question comes with each layer of one shape, program and run. */
#ifndef WEIR_WORKER_BACKEND_CUDA_CONV_CONV_CHOICES_H
#define WEIR_WORKER_BACKEND_CUDA_CONV_CONV_CHOICES_H

#include "worker/backend/cuda/conv/conv_dnn.h"

/* Everything that the ranking depends on. */
struct conv_question {
  enum conv_pass pass;
  enum cuda_type type;
  enum cuda_layout layout;
  cudnnMathType_t math;
  bool is_fast; /* the bits may differ from time to time */
  int device;
  struct cuda_conv conv;
};

struct conv_choice {
  bool is_taken; /* false: cuDNN has none, and the rest says nothing */
  int algorithm; /* of the pass's enum */
  cudnnMathType_t math;
  size_t workspace_bytes;
};

/* Any thread. False: the question is new. */
bool conv_choice_find(const struct conv_question *question, struct conv_choice *choice);
void conv_choice_keep(const struct conv_question *question, const struct conv_choice *choice);

#endif
