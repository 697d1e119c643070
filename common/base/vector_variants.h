/* A loop compiled for several widths of vectors. */
#ifndef WEIR_COMMON_BASE_VECTOR_VARIANTS_H
#define WEIR_COMMON_BASE_VECTOR_VARIANTS_H

/* For functions that hold loops which the compiler turns into vector instructions: a variant for each width,
   chosen when the program starts. All give the same bits. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&                          \
    !defined(__SANITIZE_THREAD__)
#define VECTOR_VARIANTS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VECTOR_VARIANTS
#endif

#endif
