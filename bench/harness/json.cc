#include "bench/harness/json.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace furrow::bench {

void JsonWriter::Quote(std::string_view text) {
  out_ += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out_, "\\u%04x", static_cast<unsigned>(c));
    } else {
      out_ += c;
    }
  }
  out_ += '"';
}

void JsonWriter::Key(std::string_view key) {
  if (!first_) out_ += ',';
  first_ = false;
  if (!closers_.empty()) {
    out_ += '\n';
    out_.append(closers_.size() * 2, ' ');
  }
  if (key.empty()) return;
  Quote(key);
  out_ += ": ";
}

void JsonWriter::Open(std::string_view key, char open, char close) {
  Key(key);
  out_ += open;
  closers_.push_back(close);
  first_ = true;
}

void JsonWriter::End() {
  FURROW_CHECK(!closers_.empty());
  const char closer = closers_.back();
  closers_.pop_back();
  if (!first_) {
    out_ += '\n';
    out_.append(closers_.size() * 2, ' ');
  }
  out_ += closer;
  first_ = false;
}

void JsonWriter::Add(std::string_view key, std::string_view value) {
  Key(key);
  Quote(value);
}

void JsonWriter::Add(std::string_view key, double value) {
  Key(key);
  if (std::isfinite(value)) {
    absl::StrAppendFormat(&out_, "%.3f", value);
  } else {
    out_ += "null";
  }
}

void JsonWriter::Add(std::string_view key, uint64_t value) {
  Key(key);
  absl::StrAppend(&out_, value);
}

void JsonWriter::Add(std::string_view key, bool value) {
  Key(key);
  out_ += value ? "true" : "false";
}

std::string JsonWriter::Take() {
  FURROW_CHECK(closers_.empty());
  out_ += '\n';
  return std::move(out_);
}

}  // namespace furrow::bench
