/* Orders that are kept until their step is here. */
#include "worker/train/run/reissues.h"

#include "common/base/message.h"

void reissues_keep(struct reissues *reissues, const Weir__Reissue *order) {
  uint32_t place = (uint32_t)(order->step % MODE_ROUNDS_MAX);
  reissues_drop(reissues, place);
  reissues->orders[place] = message_copy(order);
}

void reissues_drop(struct reissues *reissues, uint32_t place) {
  message_free(reissues->orders[place]);
  reissues->orders[place] = NULL;
}

void reissues_clear(struct reissues *reissues) {
  for (uint32_t place = 0; place < MODE_ROUNDS_MAX; place++)
    reissues_drop(reissues, place);
}
