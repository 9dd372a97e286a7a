// Text for error messages, without iostreams: where a toolchain links its own libstdc++ into the
// library, a stream finds the locale of another one and crashes on the first number.
#pragma once

#include <string>
#include <type_traits>

namespace kbtool {

class Text {
 public:
  template <class Part>
  Text& operator<<(const Part& part) {
    if constexpr (std::is_arithmetic_v<Part>) {
      text_ += std::to_string(part);
    } else {
      text_ += part;
    }
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

}  // namespace kbtool
