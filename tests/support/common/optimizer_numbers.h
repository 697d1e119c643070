/* The weights and gradients that tests/parity/optimizers.py made PyTorch's golden numbers with: closed
   forms in the element i and the step, whose values f32 holds exactly. */
#ifndef WEIR_TESTS_SUPPORT_COMMON_OPTIMIZER_NUMBERS_H
#define WEIR_TESTS_SUPPORT_COMMON_OPTIMIZER_NUMBERS_H

float made_up_weight(int i);
float made_up_gradient(int step, int i);

#endif
