// FURROW_CHECK is for our own bugs and stays on in release builds; FURROW_DCHECK is for the innermost loops.
// Whatever comes from a peer, a disk or a user is an absl::Status instead.
#ifndef FURROW_BASE_CHECK_H_
#define FURROW_BASE_CHECK_H_

namespace furrow::internal {
// Prints "file:line: check failed: expression" to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);
}  // namespace furrow::internal

#define FURROW_CHECK(condition)                                        \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::furrow::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#ifdef NDEBUG
#define FURROW_DCHECK(condition) \
  do {                           \
    (void)sizeof(!(condition));  \
  } while (false)
#else
#define FURROW_DCHECK(condition) FURROW_CHECK(condition)
#endif

#endif  // FURROW_BASE_CHECK_H_
