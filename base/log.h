// Log lines: one line each on standard error, written with one write(), so that lines of threads do not mix:
//   2026-05-04T13:14:15.123456Z W n2 rdma/shm/fabric.cc:88] peer 3 is gone
//
//   FURROW_LOG(INFO) << "joined as " << node;
//   FURROW_LOG_EVERY(WARNING, kSecond) << "ring full";   // at most once per second from this place
// Levels: DEBUG, INFO, WARNING, ERROR. A level that is off costs one load; its operands are not evaluated.
// Anything that goes wrong millions of times must use FURROW_LOG_EVERY. No secrets, no user data.
#ifndef FURROW_BASE_LOG_H_
#define FURROW_BASE_LOG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace furrow {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// The least level that is written; kInfo at start. Thread-safe.
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();
// What every line of this process says after the level, such as "n2"; empty at start. Thread-safe.
void SetLogTag(std::string tag);
// Receives each finished line (without the newline) instead of standard error; null: standard error again.
// For tests and for programs with a log of their own. Called under a lock: it must not log. Thread-safe.
void SetLogSink(std::function<void(LogLevel, std::string_view)> sink);

namespace internal {

inline constexpr LogLevel kLogDEBUG = LogLevel::kDebug;
inline constexpr LogLevel kLogINFO = LogLevel::kInfo;
inline constexpr LogLevel kLogWARNING = LogLevel::kWarning;
inline constexpr LogLevel kLogERROR = LogLevel::kError;

extern std::atomic<LogLevel> log_level;
inline bool LogIsOn(LogLevel level) { return level >= log_level.load(std::memory_order_relaxed); }

// One line under construction; written when it dies.
class LogLine {
 public:
  LogLine(LogLevel level, const char* file, int line, uint64_t suppressed = 0)
      : level_(level), file_(file), line_(line), suppressed_(suppressed) {}
  ~LogLine();
  std::ostream& stream() { return text_; }

 private:
  LogLevel level_;
  const char* file_;
  int line_;
  uint64_t suppressed_;
  std::ostringstream text_;
};

// Turns `stream << a << b` into a void expression, so that the macro is one statement.
struct LogVoidify {
  void operator&(std::ostream&) const {}
};

// One per FURROW_LOG_EVERY. Thread-safe.
class LogLimiter {
 public:
  // True if a line may go out now; then suppressed() says how many did not since the last.
  bool Allow(Nanos interval_ns);
  uint64_t TakeSuppressed() { return suppressed_.exchange(0, std::memory_order_relaxed); }

 private:
  std::atomic<Nanos> next_{INT64_MIN};
  std::atomic<uint64_t> suppressed_{0};
};

}  // namespace internal
}  // namespace furrow

#define FURROW_LOG(level)                                       \
  !::furrow::internal::LogIsOn(::furrow::internal::kLog##level) \
      ? (void)0                                                 \
      : ::furrow::internal::LogVoidify() &                      \
            ::furrow::internal::LogLine(::furrow::internal::kLog##level, __FILE__, __LINE__).stream()

// A lambda gives each place its own limiter.
#define FURROW_LOG_EVERY(level, interval_ns)                                                        \
  for (::furrow::internal::LogLimiter* furrow_limiter =                                             \
           [] {                                                                                     \
             static ::furrow::internal::LogLimiter limiter;                                         \
             return &limiter;                                                                       \
           }();                                                                                     \
       furrow_limiter != nullptr && ::furrow::internal::LogIsOn(::furrow::internal::kLog##level) && \
       furrow_limiter->Allow(interval_ns);                                                          \
       furrow_limiter = nullptr)                                                                    \
  ::furrow::internal::LogLine(::furrow::internal::kLog##level, __FILE__, __LINE__,                  \
                              furrow_limiter->TakeSuppressed())                                     \
      .stream()

#endif  // FURROW_BASE_LOG_H_
