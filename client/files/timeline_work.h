/* What executors do of their time, by the spans of their rows. For timeline.c alone. */
#ifndef WEIR_CLIENT_FILES_TIMELINE_WORK_H
#define WEIR_CLIENT_FILES_TIMELINE_WORK_H

#include <jansson.h>

#include "client/files/timeline.h"

/* Of the process of that number among the events of a timeline; its member is the caller's to say. No
   executors: no row of it has a task. */
struct timeline_work timeline_work_of(const json_t *events, json_int_t process);

#endif
