/* Run specs: YAML to the message RunSpec through its descriptor, and the checks that need no file. */
#ifndef WEIR_COMMON_AGREE_SPEC_H
#define WEIR_COMMON_AGREE_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "spec.pb-c.h"

/* workers.stages. */
enum { SPEC_STAGES_AUTO = 0, SPEC_STAGES_MAX = 64 };

/* A number of a spec that YAML gives by a word, and by nothing else. */
struct spec_word {
  const char *word;
  uint32_t number;
};
const struct spec_word *spec_word_of(const ProtobufCFieldDescriptor *field); /* NULL: it has none */

/* Reads YAML text. file: for messages. *out is freed with spec_free. Errors: INVALID, "FILE:LINE: ..." for
   what is not YAML, an unknown key (with the nearest known one), a key given twice, a value of the wrong type
   or out of its field's range. */
int spec_read(const char *file, const char *text, size_t size, Weir__RunSpec **out, struct err *err);
int spec_read_file(const char *path, Weir__RunSpec **out, struct err *err);

/* Where a spec comes from: a file, and settings that stand above it. */
struct spec_source {
  const char *file; /* its path */
  /* PATH=VALUE, in their order. PATH leads to a key as messages name it: "train.optimizer.lr",
     "data.transforms[0].p". VALUE is YAML, as "0.1", "[1, 2]" or "{lr: 0.1}"; it replaces what the file says
     there, or is added; null takes the key away. */
  const char *const *settings;
  int n_settings;
};

/* As spec_read_file. Errors also: INVALID, "PATH=VALUE: ..." for what is wrong in a setting. */
int spec_read_source(const struct spec_source *source, Weir__RunSpec **out, struct err *err);
/* The same of text that is there, in place of the file's. */
int spec_read_text(const struct spec_source *source, const char *text, size_t size, Weir__RunSpec **out,
                   struct err *err);

/* Writes YAML that reads as the source does, without the file's comments. Errors: those of opening the
   source, IO for `path`. */
int spec_source_write(const struct spec_source *source, const char *path, struct err *err);
void spec_free(Weir__RunSpec *spec); /* NULL is ignored */

/* A copy on the heap, freed with spec_free. */
Weir__RunSpec *spec_copy(const Weir__RunSpec *spec);

/* What any process can check about a spec, from a file or from the network: required keys present, ranges
   (batch > 0, microbatches divides batch and is at most MICROBATCHES_MAX, lr > 0 and finite, ...). What names
   of tables mean is spec_settle's to check. Also gives absent sub-messages
   (optimizer, schedule, workers) their defaults, so that readers need no NULL checks: data, train, optimizer,
   schedule, workers, model are present afterwards. Errors: INVALID, naming the key by its path
   ("train.optimizer.lr"). */
int spec_check(Weir__RunSpec *spec, struct err *err);

/* Whether the error's text begins with the path of a spec's key ("model.frozen: "): then the spec is to be
   put right, whatever it was checked against. */
bool spec_is_to_blame(const struct err *err);

/* For an error of spec_check, spec_settle or model_open about a spec: puts "FILE:LINE: " before its text,
   with the line of the key that the text begins with or of the last part of the key that is given;
   "PATH=VALUE: " where a setting gave it; "FILE: " where nothing did. Returns err->code. */
int spec_blame(const struct spec_source *source, struct err *err);

/* The options of a transform that mixes whole microbatches, which are a message Mixing, and its name; NULL
   for any other. */
const Weir__Mixing *spec_mixing(const Weir__Transform *transform, const char **name);

/* Whether train.collective names one that workers are to reduce by, as neither auto nor none does. */
bool spec_names_collective(const Weir__TrainSpec *train);

const char *spec_library_version(void); /* libyaml's, as linked */

#endif
