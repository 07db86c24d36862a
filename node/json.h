// What the commands need to write JSON.
#ifndef FURROW_NODE_JSON_H_
#define FURROW_NODE_JSON_H_

#include <string>

namespace furrow::node {

// `text` as a JSON string, with its quotes. Bytes of UTF-8 stay as they are.
std::string Quoted(const std::string& text);

}  // namespace furrow::node

#endif  // FURROW_NODE_JSON_H_
