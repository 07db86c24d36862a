#include "base/frame_pool.h"

#include <new>
#include <utility>

namespace furrow {
namespace {

constexpr size_t kStep = 64;
constexpr size_t kMaxPooled = 4096;
constexpr size_t kClasses = kMaxPooled / kStep + 1;
// The most frames that a thread keeps per class; more go back to malloc. 4,096 is the bound of coroutines in
// flight per worker, so a worker in steady state never reaches malloc.
constexpr size_t kMaxKept = 4096;

#if defined(__SANITIZE_ADDRESS__) || (defined(__has_feature) && __has_feature(address_sanitizer))
constexpr bool kPooling = false;  // let the sanitizer see each frame's life
#else
constexpr bool kPooling = true;
#endif

struct Node {
  Node* next;
};

struct Lists {
  Node* head[kClasses] = {};
  size_t kept[kClasses] = {};
  ~Lists() {
    for (Node*& list : head) {
      while (list != nullptr) ::operator delete(std::exchange(list, list->next));
    }
    gone = true;
  }
  bool gone = false;
};

thread_local Lists lists;

}  // namespace

void* AllocateFrame(size_t bytes) {
  size_t cls = (bytes + kStep - 1) / kStep;
  if (!kPooling || cls >= kClasses) return ::operator new(bytes);
  if (Node* node = lists.head[cls]; node != nullptr) {
    lists.head[cls] = node->next;
    --lists.kept[cls];
    return node;
  }
  return ::operator new(cls * kStep);
}

void FreeFrame(void* frame, size_t bytes) {
  size_t cls = (bytes + kStep - 1) / kStep;
  if (!kPooling || cls >= kClasses || lists.gone || lists.kept[cls] >= kMaxKept) {
    ::operator delete(frame);
    return;
  }
  Node* node = static_cast<Node*>(frame);
  node->next = lists.head[cls];
  lists.head[cls] = node;
  ++lists.kept[cls];
}

}  // namespace furrow
