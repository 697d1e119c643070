/* Shape inference and cases that several elementwise ops of two tensors share. */
#include "model/ops/shared/pairwise.h"

int logic_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, 1 << DTYPE_BOOL, DTYPE_BOOL, err);
}

const struct op_case logic_cases[] = {
    {.inputs = "bool{2}[a,b,c] bool{2}[a,b,c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "bool{2}[a,1,c] bool{2}[b,1]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "bool{2}[] bool{2}[3]"},
    {0},
};

int bitwise_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, DTYPES_INTEGERS, DTYPE_NONE, err);
}

const struct op_case bitwise_cases[] = {
    {.inputs = "i32{99}[a,b,c] i32{99}[b,1]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "i64[3]=-5,7,123456789012 i64[3]=3,-2,99"},
    {.inputs = "u8{256}[2,3] u8{256}[]"},
    {0},
};

int order_infer(struct graph *graph, const struct node *node, struct err *err) {
  return broadcast_infer_as(graph, node, DTYPES_NUMBERS, DTYPE_BOOL, err);
}

const struct op_case order_cases[] = {
    {.inputs = "f32[2,4]=1,-2,3,0,5,0.5,-0.5,2 f32[4]=1,-1,3,0.25"},
    {.inputs = "i32{3}[a,b,c] i32{3}[b,1]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "i64{3}[a,1] i64{3}[b,1,c]", .draw = "a=1..3 b=1..4 c=1..5"},
    {.inputs = "u8{3}[2,3] u8{3}[]"},
    {0},
};

const struct op_case arithmetic_cases[] = {
    {.inputs = "f32[2,3,4] f32[2,3,4]"},
    {.inputs = "f32[2,3,4,5] f32[5]"},
    {.inputs = "f32[3,1,2] f32[4,1]"},
    {.inputs = "f32[] f32[2,3]"},
    {.inputs = "f32[2,3] f32[]"},
    {.inputs = "f32[2,1,4,1] f32[2,3,1,5]"},
    {.inputs = "i64{9}[2,3] i64{9}[3]"},
    {.inputs = "f32[a,b,c] f32[d,e,c]", .draw = "a=1..4 b=1..4 c=1..5 d=1|a e=1|b"},
    {.inputs = "f32[s] f32[c]", .draw = "c=1..5 s=c|2,c|3,1,c|1|"},
    {0},
};
