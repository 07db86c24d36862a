// A JSON writer for reports: objects and arrays opened and closed in order, nothing checked but the nesting.
#ifndef FURROW_BENCH_HARNESS_JSON_H_
#define FURROW_BENCH_HARNESS_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace furrow::bench {

class JsonWriter {
 public:
  // Keys are for members of objects; leave them out in arrays.
  void BeginObject(std::string_view key = {}) { Open(key, '{', '}'); }
  void BeginArray(std::string_view key = {}) { Open(key, '[', ']'); }
  void End();
  void Add(std::string_view key, std::string_view value);
  void Add(std::string_view key, const char* value) { Add(key, std::string_view(value)); }
  void Add(std::string_view key,
           double value);  // three digits after the point; NaN and infinities become null
  void Add(std::string_view key, uint64_t value);
  void Add(std::string_view key, bool value);
  // The document, ended with a newline; every BeginX() has had its End().
  std::string Take();

 private:
  void Key(std::string_view key);
  void Open(std::string_view key, char open, char close);
  void Quote(std::string_view text);
  std::string out_;
  std::vector<char> closers_;
  bool first_ = true;
};

}  // namespace furrow::bench

#endif  // FURROW_BENCH_HARNESS_JSON_H_
