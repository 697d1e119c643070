/* Answers of `sync` that other modes give, too. */
#ifndef WEIR_COMMON_MODES_SYNC_H
#define WEIR_COMMON_MODES_SYNC_H

#include "common/modes/mode.h"

uint64_t sync_version(const Weir__TrainSpec *train, uint64_t step);
enum mode_arrival sync_arrive(const Weir__TrainSpec *train, const struct mode_part *part);
uint64_t sync_answer(const Weir__TrainSpec *train, uint64_t wanted, uint64_t newest);
uint64_t sync_oldest(const Weir__TrainSpec *train, uint64_t complete);
uint64_t sync_boundary(const Weir__TrainSpec *train, uint64_t version);

#endif
