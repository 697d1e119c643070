/* The weights and gradients that tests/parity/optimizers.py makes up; f32 holds their values exactly. */
#ifndef WEIR_TESTS_OPTIMIZER_NUMBERS_H
#define WEIR_TESTS_OPTIMIZER_NUMBERS_H

float made_up_weight(int i);

float made_up_gradient(int step, int i);

#endif
