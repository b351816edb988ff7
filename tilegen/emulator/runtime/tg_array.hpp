// A growable array of plain data, because the runtime links without the C++ standard library.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

namespace tg {

// T must be copyable with memcpy. Memory is kept over clear() and given back by nobody: the arrays
// live as long as the process.
template <class T>
struct Array {
  T* data = nullptr;
  uint32_t size = 0, capacity = 0;

  T& operator[](size_t i) { return data[i]; }
  const T& operator[](size_t i) const { return data[i]; }
  T* begin() { return data; }
  T* end() { return data + size; }
  const T* begin() const { return data; }
  const T* end() const { return data + size; }
  bool empty() const { return size == 0; }
  void clear() { size = 0; }

  void reserve(uint32_t n) {
    if (n <= capacity) return;
    capacity = n > 2 * capacity ? n : 2 * capacity;
    data = static_cast<T*>(realloc(static_cast<void*>(data), sizeof(T) * capacity));
    if (!data) abort();
  }
  T& push(const T& item) {
    const T copy = item;  // `item` may lie in the array that moves
    reserve(size + 1);
    data[size] = copy;
    return data[size++];
  }
  // n items, all bytes zero.
  void assign_zero(uint32_t n) {
    reserve(n);
    size = n;
    if (n) memset(static_cast<void*>(data), 0, sizeof(T) * n);
  }
  void erase(uint32_t first, uint32_t count) {
    memmove(static_cast<void*>(data + first), data + first + count,
            sizeof(T) * (size - first - count));
    size -= count;
  }
};

}  // namespace tg
