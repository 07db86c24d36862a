// MemoryFile: bytes that can be registered with a fabric: a file of the node's memory directory (tmpfs),
// mapped shared, so that it outlives a process crash; or anonymous memory where no file is wanted.
#ifndef FURROW_BASE_MEMORY_FILE_H_
#define FURROW_BASE_MEMORY_FILE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace furrow {

class MemoryFile {
 public:
  struct Options {
    bool huge_pages = false;  // advise 2 MB pages; the host decides (see HugePagesGranted)
    bool must_be_new =
        true;  // AlreadyExists if the path exists; otherwise an existing file of this size is mapped
  };
  // Creates or opens `path` with mode 0600 and maps it read-write. Every page is allocated here, so that a
  // full file system is ResourceExhausted now and never a SIGBUS later. `bytes` is rounded up to the page
  // size; new bytes are 0.
  static absl::StatusOr<MemoryFile> Open(const std::string& path, size_t bytes, Options options);
  // A memory file without a name (memfd), for tests and for memory that need not outlive the process.
  static absl::StatusOr<MemoryFile> Anonymous(size_t bytes);
  // Maps an open file descriptor of a peer (which stays the caller's) read-only or read-write.
  static absl::StatusOr<MemoryFile> MapDescriptor(int fd, size_t bytes, bool writable);

  // Where the bytes are mapped; unmaps when the last of those that hold it lets go.
  struct Mapping {
    Mapping(std::byte* d, size_t b) : data(d), bytes(b) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    std::byte* const data;
    const size_t bytes;
  };

  MemoryFile() = default;
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&& other) noexcept;
  ~MemoryFile();  // lets the mapping go and closes; the file stays until Unlink()

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }
  // For who needs the mapping, not the bytes, for longer than this object lives. Null: there is none.
  std::shared_ptr<const Mapping> mapping() const { return mapping_; }
  int fd() const { return fd_; }  // stays owned by this object; -1 for MapDescriptor
  const std::string& path() const { return path_; }
  // A new descriptor of the same file that can only be read (and mapped read-only); the caller closes it.
  absl::StatusOr<int> ReadOnlyDescriptor() const;
  // Removes the name; the mapping stays.
  absl::Status Unlink();
  // Bytes of the mapping that the kernel backs with huge pages now (from smaps); for reports.
  absl::StatusOr<size_t> HugePageBytes() const;
  // The same for all that this process maps. Each of the two walks the page tables of the process:
  // milliseconds per GB.
  static absl::StatusOr<size_t> HugePageBytesOfProcess();

 private:
  void SetMapping(std::byte* data, size_t bytes);

  std::shared_ptr<const Mapping> mapping_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;
  std::string path_;
};

}  // namespace furrow

#endif  // FURROW_BASE_MEMORY_FILE_H_
