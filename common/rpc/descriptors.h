/* The descriptor set of our protos (google.protobuf.FileDescriptorSet), generated when we are built. */
#ifndef WEIR_COMMON_RPC_DESCRIPTORS_H
#define WEIR_COMMON_RPC_DESCRIPTORS_H

extern const unsigned char rpc_descriptors[];
extern const unsigned long rpc_descriptors_size;

#endif
