// How the partial sums of blocks that share the K of a tile become one.
#pragma once

// As `REDUCTION` in autotune/families/shared/cuda_enums.py. A test compares them.
enum class Reduction {
    NONE,      // not at all: a block has all of K
    SEPARATE,  // each block stores a partial C, and another launch adds them up (split_k.cu)
    FUSED,     // the last block of a tile adds them up (last_block.cuh)
    STREAM,    // the same, with the shares of stream-K (stream_k.cuh)
};
