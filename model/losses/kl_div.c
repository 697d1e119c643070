/* The Kullback-Leibler divergence of log-probabilities from probabilities, or from log-probabilities with
   log_target, as PyTorch's KLDivLoss. Its mean is over elements; batchmean is over samples. */
#include "model/losses/elements.h"

#include <string.h>

static int kl_div_attach(struct loss_site *site, struct err *err) {
  struct element_loss loss = {.kind = site->options->log_target ? "kl_div_log" : "kl_div", .weights = -1};
  if (loss_attach_elements(site, &loss, err))
    return err->code;
  if (strcmp(site->options->reduction, "batchmean") == 0)
    site->rule.sample_denominator = 1;
  return 0;
}

static const char *const kl_div_options[] = {"log_target", "reduction", NULL};

const struct loss_def loss_kl_div = {"kl_div", kl_div_options, kl_div_attach};
