#include "races.cuh"
__device__ int counter, marks[256];
struct Three { int a, b, c; };
KERNEL(variable_of_the_device, 4, 32) {
  if (racy) counter += x[I];
  else atomicAdd(&counter, x[I]);
}
KERNEL(array_of_the_device, 4, 32) { marks[racy ? I / 2 : I] = I; }
KERNEL(structs, 2, 64) {
  Three* to = reinterpret_cast<Three*>(out);
  to[racy ? I / 2 : I] = Three{I, 1, 2};
}
KERNEL(copied, 2, 32) { memcpy(out + 4 * I, x + I, racy ? 20 : 16); }
KERNEL(copied_by_a_builtin, 2, 32) { __builtin_memcpy(out + 3 * I, x + I, racy ? 13 : 12); }
KERNEL(vectors, 2, 32) {
  if (racy) reinterpret_cast<int2*>(out)[I] = make_int2(1, I), out[2 * I + 2] = I;
  else reinterpret_cast<int2*>(out)[I] = make_int2(1, I);
}
KERNEL(bytes, 2, 64) {
  auto* at = reinterpret_cast<unsigned char*>(out);
  at[racy ? I & ~1 : I] = static_cast<unsigned char>(I);
}
KERNEL(stored_and_never_read, 1, 64) {
  __shared__ int s[64];
  s[racy ? ME / 2 : ME] = ME;
}
KERNEL(set_twice, 2, 32) {
  out[racy ? I / 2 : I] = I;
  out[racy ? I / 2 : I] = I + 1;
}
KERNEL(off_by_one, 2, 64) {
  for (int i = 0; i < 2 + racy; ++i) out[2 * I + i] = I;
}
KERNEL(swapped_pairs, 2, 64) {
  int other = out[I ^ 1];
  if (racy) out[I] = other + 1;
  else flags[I] = other + 1;
}
