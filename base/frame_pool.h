// Memory of coroutine frames: per-thread free lists, so that a frame costs no trip to malloc.
#ifndef FURROW_BASE_FRAME_POOL_H_
#define FURROW_BASE_FRAME_POOL_H_

#include <cstddef>

namespace furrow {

// Frames up to kMaxPooled bytes come from the calling thread's list of their size class, others from malloc.
// A frame may be freed on another thread; it then joins that thread's list.
void* AllocateFrame(size_t bytes);
void FreeFrame(void* frame, size_t bytes);

}  // namespace furrow

#endif  // FURROW_BASE_FRAME_POOL_H_
