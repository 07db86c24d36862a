#include "index/spec.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "index/descriptor.h"
#include "index/inline_bucket.h"

namespace furrow::index {
namespace {

constexpr size_t kMaxNameBytes = 255;
constexpr uint32_t kMaxKeyBytes = 1024;
constexpr uint32_t kMaxPartitions = 4096;
constexpr size_t kMaxSecondaries = 16;

absl::Status Bad(const TableSpec& spec, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("table \"", spec.name, "\": ", why));
}

absl::Status ValidateSecondary(const TableSpec& spec, const SecondarySpec& index) {
  if (index.name.empty() || index.name.size() > kMaxNameBytes) {
    return Bad(spec, absl::StrCat("the name of a secondary index has 1 to ", kMaxNameBytes, " bytes"));
  }
  if (index.parts.empty()) return Bad(spec, absl::StrCat("index \"", index.name, "\" has no key parts"));
  if (index.kind == IndexKind::kHash && !index.unique) {
    return Bad(spec, absl::StrCat("hash index \"", index.name, "\" must be unique; use a B-tree"));
  }
  for (const KeyPart& part : index.parts) {
    if (part.length == 0)
      return Bad(spec, absl::StrCat("index \"", index.name, "\" has a key part of length 0"));
  }
  return absl::OkStatus();
}

// Why the rows cannot lie in the buckets; empty: they can.
std::string WhyNotInline(const TableSpec& spec) {
  if (spec.primary != IndexKind::kHash) {
    return "a B-tree cannot hold inline rows: set primary to kHash, or row_layout to kSeparate";
  }
  if (!spec.secondaries.empty()) {
    return "inline rows have no address that a secondary index could name: drop the secondary indexes, or "
           "set row_layout to kSeparate";
  }
  if (InlineGeometry::For(spec.max_key_bytes, spec.max_value_bytes).slots == 0) {
    const std::string value = spec.max_value_bytes == TableSpec::kAnyValueBytes
                                  ? std::string("of any size")
                                  : absl::StrCat(spec.max_value_bytes);
    return absl::StrCat(
        "inline rows need max_key_bytes and max_value_bytes, each rounded up to 8, of at most ",
        kMaxInlineRowBytes, " together; they are ", spec.max_key_bytes, " and ", value,
        ": lower them, or set row_layout to kSeparate");
  }
  return {};
}

}  // namespace

RowLayout ResolvedLayout(const TableSpec& spec) {
  if (spec.row_layout != RowLayout::kAuto) return spec.row_layout;
  return WhyNotInline(spec).empty() ? RowLayout::kInline : RowLayout::kSeparate;
}

std::string Difference(const TableSpec& have, const TableSpec& wanted) {
  std::string out;
  const auto compare = [&out](absl::string_view what, const auto& is, const auto& not_this) {
    if (is != not_this) absl::StrAppend(&out, out.empty() ? "" : ", ", what, " is ", is, ", not ", not_this);
  };
  const auto kind = [](IndexKind k) { return absl::string_view(k == IndexKind::kHash ? "kHash" : "kBtree"); };
  const auto layout = [](RowLayout l) {
    return absl::string_view(l == RowLayout::kInline ? "kInline" : "kSeparate");
  };
  const auto quoted = [](const std::string& text) { return absl::StrCat("\"", text, "\""); };
  const auto bytes = [](uint32_t n) {
    return n == TableSpec::kAnyValueBytes ? std::string("kAnyValueBytes") : absl::StrCat(n);
  };
  compare("primary", kind(have.primary), kind(wanted.primary));
  compare("max_key_bytes", have.max_key_bytes, wanted.max_key_bytes);
  compare("max_value_bytes", bytes(have.max_value_bytes), bytes(wanted.max_value_bytes));
  if (wanted.row_layout != RowLayout::kAuto) {
    compare("row_layout", layout(ResolvedLayout(have)), layout(wanted.row_layout));
  }
  compare("partitions", have.partitions, wanted.partitions);
  compare("prefix_bytes", have.prefix_bytes, wanted.prefix_bytes);
  compare("placement_group", quoted(have.placement_group), quoted(wanted.placement_group));
  compare("secondaries.size()", have.secondaries.size(), wanted.secondaries.size());
  for (size_t i = 0; i < std::min(have.secondaries.size(), wanted.secondaries.size()); ++i) {
    const SecondarySpec& is = have.secondaries[i];
    const SecondarySpec& not_this = wanted.secondaries[i];
    const std::string where = absl::StrCat("secondaries[", i, "].");
    compare(absl::StrCat(where, "name"), quoted(is.name), quoted(not_this.name));
    compare(absl::StrCat(where, "kind"), kind(is.kind), kind(not_this.kind));
    compare(absl::StrCat(where, "unique"), is.unique, not_this.unique);
    const auto parts = [](const SecondarySpec& s) {
      return absl::StrJoin(s.parts, "+", [](std::string* text, const KeyPart& p) {
        absl::StrAppend(text, p.source == KeyPart::Source::kKey ? "key[" : "value[", p.offset, ", ",
                        p.offset + p.length, ")");
      });
    };
    compare(absl::StrCat(where, "parts"), parts(is), parts(not_this));
  }
  return out;
}

absl::Status Validate(const TableSpec& spec) {
  if (spec.name.empty() || spec.name.size() > kMaxNameBytes) {
    return Bad(spec, absl::StrCat("a name has 1 to ", kMaxNameBytes, " bytes"));
  }
  if (spec.max_key_bytes < 1 || spec.max_key_bytes > kMaxKeyBytes) {
    return Bad(spec, absl::StrCat("max_key_bytes is ", spec.max_key_bytes, ", not 1 to ", kMaxKeyBytes));
  }
  if (spec.partitions < 1 || spec.partitions > kMaxPartitions) {
    return Bad(spec, absl::StrCat("partitions is ", spec.partitions, ", not 1 to ", kMaxPartitions));
  }
  if (spec.row_layout > RowLayout::kInline) {
    return Bad(spec, absl::StrCat("row_layout ", static_cast<int>(spec.row_layout), " is not known"));
  }
  if (spec.row_layout == RowLayout::kInline) {
    const std::string why = WhyNotInline(spec);
    if (!why.empty()) return Bad(spec, why);
  }
  if (spec.prefix_bytes > spec.max_key_bytes) return Bad(spec, "prefix_bytes exceeds max_key_bytes");
  if (spec.secondaries.size() > kMaxSecondaries) {
    return Bad(spec, absl::StrCat("more than ", kMaxSecondaries, " secondary indexes"));
  }
  absl::flat_hash_set<std::string> names;
  TableDescriptor lengths;
  lengths.spec = spec;
  for (size_t i = 0; i < spec.secondaries.size(); ++i) {
    absl::Status status = ValidateSecondary(spec, spec.secondaries[i]);
    if (!status.ok()) return status;
    if (!names.insert(spec.secondaries[i].name).second) {
      return Bad(spec, absl::StrCat("two secondary indexes are named \"", spec.secondaries[i].name, "\""));
    }
    if (lengths.max_key_bytes(i + 1) > kMaxKeyBytes) {
      return Bad(spec, absl::StrCat("keys of index \"", spec.secondaries[i].name, "\" may exceed ",
                                    kMaxKeyBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace furrow::index
