// Reads the small files of /proc and /sys below a root.
#ifndef FURROW_NODE_DOCTOR_ROOT_FILES_H_
#define FURROW_NODE_DOCTOR_ROOT_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace furrow::node {

class RootFiles {
 public:
  explicit RootFiles(std::string root) : root_(std::move(root)) {}

  std::string Path(const std::string& path) const { return root_ + path; }
  bool Exists(const std::string& path) const;
  // The content without white space at its ends; empty if it cannot be read.
  std::string Text(const std::string& path) const;
  std::optional<uint64_t> Number(const std::string& path) const;
  // Names in a directory, sorted, numbers by their value; empty if there is none.
  std::vector<std::string> List(const std::string& path) const;
  // The last part of what a symbolic link names.
  std::string LinkName(const std::string& path) const;
  // The number behind "name:" in a file like /proc/meminfo, where kB makes it bytes.
  std::optional<uint64_t> Field(const std::string& path, const std::string& name) const;

 private:
  const std::string root_;
};

// "0-3,8" as numbers; what cannot be understood is left out.
std::vector<int> ParseList(const std::string& text);
// "max" and "unlimited" are kUnlimited.
std::optional<uint64_t> ParseLimit(const std::string& text);

}  // namespace furrow::node

#endif  // FURROW_NODE_DOCTOR_ROOT_FILES_H_
