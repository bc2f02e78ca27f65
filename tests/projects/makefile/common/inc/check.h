#pragma once
#include <concepts>
template <std::integral T> constexpr T twice(T value) { return 2 * value; }
