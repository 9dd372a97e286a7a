// What the kernels that finish in one launch have in common, idea by idea in a file of its own.
//
// A kernel's configuration C says, beside its own,
//   Element, D, ALIGNED    the type; the bucket of the head dimension; rows copy 16 bytes at a time
//   BLOCK_M, BLOCK_KV      rows of a tile, keys of a block
//   INTERLEAVED_KEYS, PAIRED          how keys are cut, work_unit.cuh; whether two blocks share their copies
//   THREADS                that finish the tile; LAUNCH_THREADS, those and others before them
//   COPY_THREADS           that fill one tile together
//   CHUNKS, STATE_CHUNKS   pieces of 16 bytes in a row of k or v; of four floats in a row of o
//   tile_offset(row, chunk)      where a chunk lies in a tile
//   STATES, STATE_STEP     states of the block before the merge, and the bytes from one to the next
//   STATE_STRIDE           floats from row to row of a state
//   ML_OFFSET, EXCHANGE_OFFSET, RECEIVED_ML_OFFSET, received_o_offset(cluster)
//                          where the merge keeps its parts, in bytes of shared memory
//   shared_bytes(cluster)  of a block
#pragma once

#include "work_unit.cuh"
#include "block_merge.cuh"
#include "dependent_launch.cuh"
#include "lane_state.cuh"
#include "tile_copy.cuh"
