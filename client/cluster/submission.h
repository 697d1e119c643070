/* What a user submits: a spec and its model, checked here before anything is started or sent. */
#ifndef WEIR_CLIENT_CLUSTER_SUBMISSION_H
#define WEIR_CLIENT_CLUSTER_SUBMISSION_H

#include "client/cluster/connect.h"
#include "client/option.h"
#include "common/agree/spec.h"
#include "model/onnx/model_file.h"
#include "spec.pb-c.h"
#include "sweep.pb-c.h"

/* A model file beside that of the spec. */
struct submission_model {
  char *path;
  void *onnx; /* NULL: it is the same model */
  size_t size_bytes;
};

struct submission {
  Weir__RunSpec *spec;
  const Weir__SweepSpec *sweep; /* borrowed: its trials begin with the spec; NULL: a run is submitted */
  const struct submission_model *files; /* [n_files] borrowed: the files of the sweep's space */
  size_t n_files;
  void *onnx;
  size_t onnx_size;
  struct piece_source pieces; /* that the file names; read NULL where it names none */
  struct model_file file;     /* where they lie, when it was loaded; its bytes are onnx */
  char *path, *model_path;    /* the files; NULL: it was not loaded from any */
};

/* The spec of a command whose arguments are SPEC [PATH=VALUE]... */
struct spec_source submission_source(const struct args *args);

/* Reads and checks a spec and its model (relative to the spec's file), as every process of the cluster will
   do again. Errors: INVALID, UNSUPPORTED or IO. What the spec says wrongly, also of its model, is named by
   the spec's file, line and key, or by the setting; what is wrong in the model, by the model's file and node.
   What the model's exporter left out is said on stderr. Released with submission_fini, also after an error.
 */
int submission_load(struct submission *submission, const struct spec_source *source, struct err *err);
void submission_fini(struct submission *submission); /* safe on a zeroed one */
/* A path that a file names, as seen from the folder that the file lies in; freed by the caller. */
char *submission_path_beside(const char *file, const char *path);
/* Reads the model alone. Errors: those of model_file_open. Released likewise. */
int submission_open_model(struct submission *submission, const char *path, struct err *err);

/* Uploads it. *run: the id of the new run, or of the sweep, freed by the caller. Errors: what the coordinator
   says to it, which names the spec's file in place of the coordinator where that is at fault; CANCELLED on a
   stop (see client/cluster/stop.h); UNAVAILABLE worded for people. */
int submission_send(const struct submission *submission, struct connection *connection, char **run,
                    struct err *err);
/* Whether the coordinator's error begins with a key of the sweep's spec. */
bool submission_blames_sweep(const struct err *err);

#endif
