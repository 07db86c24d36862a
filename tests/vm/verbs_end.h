// One end of a reliable connection, made by hand from plain verbs: what the tests of the device itself use.
// No connection manager, no code of rdma/. One thread.
#ifndef FURROW_TESTS_VM_VERBS_END_H_
#define FURROW_TESTS_VM_VERBS_END_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/memory_file.h"

namespace furrow::vm {

// Names of the RDMA devices that can be opened.
std::vector<std::string> DeviceNames();

// What a completion said; opaque numbers are those of <infiniband/verbs.h>.
struct Ended {
  uint64_t id = 0;
  int status = 0;
  int opcode = 0;
  uint32_t bytes = 0;
  uint32_t immediate = 0;
};

class VerbsEnd {
 public:
  enum class Verb { kRead, kWrite, kWriteWithImmediate };
  struct Place {
    uint64_t address = 0;
    uint32_t key = 0;
  };
  // Longer than any operation under emulation on a busy host; a hang ends the test with a sentence.
  static constexpr Nanos kPatience = 60 * kSecond;

  // Opens `device`, registers `bytes` of new memory with all rights, makes a queue pair with a completion
  // channel.
  static absl::StatusOr<std::unique_ptr<VerbsEnd>> Make(const std::string& device, size_t bytes);
  ~VerbsEnd();
  VerbsEnd(const VerbsEnd&) = delete;
  VerbsEnd& operator=(const VerbsEnd&) = delete;

  // One line: what the device says of itself.
  std::string Abilities() const;
  std::span<std::byte> memory() { return memory_.bytes(); }
  Place place() const;

  // Makes the queue pair ready to send to `peer`, or to a pair that is not there, which never answers.
  absl::Status ConnectTo(const VerbsEnd& peer);
  absl::Status ConnectToNobodyAt(const VerbsEnd& peer);
  absl::Status PostReceive(uint64_t id);
  absl::Status Post(Verb verb, uint64_t id, size_t offset, size_t bytes, Place remote);
  // Waits for one completion.
  absl::StatusOr<Ended> Poll();
  // The next completion wakes who sleeps on the channel; sleeps there until then.
  absl::Status Arm();
  absl::Status Sleep();

 private:
  struct Verbs;
  VerbsEnd();
  absl::Status Connect(const VerbsEnd& peer, uint32_t queue_pair);

  MemoryFile memory_;
  std::unique_ptr<Verbs> verbs_;
};

}  // namespace furrow::vm

#endif  // FURROW_TESTS_VM_VERBS_END_H_
