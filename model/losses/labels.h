/* The meaning of a run's labels, and how much each counts. From it workers compute the divisor of a step's
   sum of losses, before they compute any microbatch. */
#ifndef WEIR_MODEL_LOSSES_LABELS_H
#define WEIR_MODEL_LOSSES_LABELS_H

#include <stdbool.h>
#include <stdint.h>

struct label_rule {
  int64_t classes;      /* labels are classes in [0, classes); 0: they are f32 targets, or there are none */
  int64_t ignore_index; /* of classes: a label that does not count */
  const float *weights; /* f32[classes], of each class; NULL: 1 each */
  double sample_denominator; /* without classes: what every sample adds to the denominator */
};

static inline bool label_is_class(const struct label_rule *rule, int64_t label) {
  return label != rule->ignore_index && label >= 0 && label < rule->classes;
}

/* What a label adds to the denominator; nothing where it is no class: data may change while it is mapped. */
static inline double label_weight(const struct label_rule *rule, int64_t label) {
  if (!label_is_class(rule, label))
    return 0;
  return rule->weights ? (double)rule->weights[label] : 1.0;
}

#endif
