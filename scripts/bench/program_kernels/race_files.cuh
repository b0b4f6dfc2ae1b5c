#pragma once
__device__ inline int place(int i) {
#ifdef PLANTED
  return i / 2;
#else
  return i;
#endif
}
static __global__ void fill(int* x) { x[place(threadIdx.x)] = threadIdx.x; }
inline void start(int* x) { fill<<<1, 64>>>(x); }
int from_part(int* x);
