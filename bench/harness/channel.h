// LineChannel: lines of text between the benchmark's parent and its processes, over a Unix socket. Not
// thread-safe.
#ifndef FURROW_BENCH_HARNESS_CHANNEL_H_
#define FURROW_BENCH_HARNESS_CHANNEL_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace furrow::bench {

class LineChannel {
 public:
  static constexpr size_t kMaxLine = 4 << 20;

  // Two ends of one channel. Both descriptors are closed on exec; see KeepOnExec().
  static absl::StatusOr<std::pair<LineChannel, LineChannel>> Pair();
  // Takes over a descriptor that was inherited.
  explicit LineChannel(int fd) : fd_(fd) {}
  LineChannel(LineChannel&& other) noexcept;
  LineChannel& operator=(LineChannel&& other) noexcept;
  ~LineChannel();

  int fd() const { return fd_; }
  absl::Status KeepOnExec();

  // `line` has no newline. Waits while the other side does not read. Unavailable: the other side is gone.
  absl::Status Send(std::string_view line);
  // The next line that is here already, without waiting.
  std::optional<std::string> TakeLine();
  // Reads what has arrived, without waiting. False: the other side has closed, or sent a line beyond
  // kMaxLine.
  bool Fill();

 private:
  int fd_ = -1;
  std::string buffer_;
};

// Waits until one of the channels has something to read (or is closed), a signal arrives, or `timeout_ns` is
// over.
void WaitForAny(std::span<LineChannel* const> channels, Nanos timeout_ns);

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_CHANNEL_H_
