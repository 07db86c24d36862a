#include "base/log.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace furrow {
namespace internal {

std::atomic<LogLevel> log_level{LogLevel::kInfo};

namespace {

struct Output {
  Mutex mutex;
  std::string tag ABSL_GUARDED_BY(mutex);
  std::function<void(LogLevel, std::string_view)> sink ABSL_GUARDED_BY(mutex);
};

// Never destroyed, so that threads and destructors may log until the very end.
Output& GetOutput() {
  static Output& output = *new Output;
  return output;
}

// "/long/path/furrow/base/log.cc" -> "base/log.cc".
std::string_view FolderAndFile(std::string_view path) {
  size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return path;
  slash = path.rfind('/', slash - 1);
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string UtcTime() {
  const Nanos now = WallClockNow();
  const time_t seconds = now / kSecond;
  tm parts;
  gmtime_r(&seconds, &parts);
  char text[32];
  const size_t length = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof(text) - length, ".%06dZ", static_cast<int>(now % kSecond / 1000));
  return text;
}

void WriteToStandardError(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads: nothing that logging could do about it
    line.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

LogLine::~LogLine() {
  constexpr char kLetters[] = "DIWE";
  std::string text = text_.str();
  for (char& c : text) {
    if (c == '\n') c = ' ';  // one line stays one line
  }
  if (suppressed_ > 0) absl::StrAppend(&text, " (", suppressed_, " such lines left out before)");
  Output& output = GetOutput();
  MutexLock lock(&output.mutex);
  std::string line =
      absl::StrCat(UtcTime(), " ", absl::string_view(&kLetters[static_cast<int>(level_)], 1), " ", output.tag,
                   output.tag.empty() ? "" : " ", Sv(FolderAndFile(file_)), ":", line_, "] ", text);
  if (output.sink != nullptr) {
    output.sink(level_, line);
    return;
  }
  line.push_back('\n');
  WriteToStandardError(line);
}

bool LogLimiter::Allow(Nanos interval_ns) {
  const Nanos now = MonotonicClock().Now();
  Nanos next = next_.load(std::memory_order_relaxed);
  if (now >= next && next_.compare_exchange_strong(next, now + interval_ns, std::memory_order_relaxed))
    return true;
  suppressed_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace internal

void SetLogLevel(LogLevel level) { internal::log_level.store(level, std::memory_order_relaxed); }
LogLevel GetLogLevel() { return internal::log_level.load(std::memory_order_relaxed); }

void SetLogTag(std::string tag) {
  internal::Output& output = internal::GetOutput();
  MutexLock lock(&output.mutex);
  output.tag = std::move(tag);
}

void SetLogSink(std::function<void(LogLevel, std::string_view)> sink) {
  internal::Output& output = internal::GetOutput();
  MutexLock lock(&output.mutex);
  output.sink = std::move(sink);
}

}  // namespace furrow
