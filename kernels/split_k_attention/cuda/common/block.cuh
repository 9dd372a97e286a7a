// All that the kernels fused, ragged and wgmma share.
//
// Members of a kernel's configuration C that the shared code uses. wgmma has none of those below the line: it copies
// keys by TMA and does not merge in the block.
//   Element, D             element type; compiled head dimension
//   BLOCK_M, BLOCK_KV      rows of a query tile, keys of a key block
//   INTERLEAVED_KEYS       key blocks go to the splits in turn (work_unit.cuh)
//   OPTIONS, TREES         the call may have a window or softcap; a tree mask
//   PACKED                 the call has packed queries
//   PAIRED                 two blocks multicast k and v to each other
//   THREADS                threads of the block without producer warps
//   LAUNCH_THREADS         all threads of the block
//   CHUNKS, STATE_CHUNKS   chunks of 16 bytes in a row of k or v; of four floats in a row of o
//   TILE_BYTES, key_of(chunk)    bytes of a tile of k or v; the key of a chunk of 16 bytes
//   shared_bytes(cluster)  of a block
//   LENGTH_OFFSET          int64_t in shared memory, the valid keys of the batch entry; or a PackedTile
//   ----
//   ALIGNED, COPY_THREADS  rows of k and v copy 16 bytes at a time; threads that fill one tile together
//   tile_offset(row, chunk)      byte offset of a chunk in a tile
//   STATES, STATE_STEP     partial states of the block before the merge, and bytes from one to the next
//   STATE_STRIDE           floats from row to row of a partial state
//   ML_OFFSET, EXCHANGE_OFFSET, RECEIVED_ML_OFFSET, received_o_offset(cluster)
//                          layout of the merge in shared memory, bytes
#pragma once

#include "work_unit.cuh"
#include "block_merge.cuh"
#include "dependent_launch.cuh"
#include "lane_state.cuh"
#include "tile_copy.cuh"
