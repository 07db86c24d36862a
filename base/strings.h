// Debian's Abseil is built with a string_view class of its own, which neither converts to std::string_view
// nor from it.
//   absl::StrCat("no table ", Sv(name))       name is a std::string_view
//   Print(Sv(status.message()))               Print takes a std::string_view
#ifndef FURROW_BASE_STRINGS_H_
#define FURROW_BASE_STRINGS_H_

#include <string_view>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace furrow {

template <class View>
  requires std::is_same_v<View, std::string_view>
constexpr absl::string_view Sv(View text) {
  return absl::string_view(text.data(), text.size());
}

template <class View>
  requires(std::is_same_v<View, absl::string_view> && !std::is_same_v<absl::string_view, std::string_view>)
constexpr std::string_view Sv(View text) {
  return std::string_view(text.data(), text.size());
}

}  // namespace furrow

#endif  // FURROW_BASE_STRINGS_H_
