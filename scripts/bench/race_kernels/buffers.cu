#include "races.cuh"
KERNEL(double_buffer, 1, 128) {
  __shared__ int tile[2][128];
  tile[0][ME] = x[ME];
  for (int t = 0; t < 4; ++t) {
    BARRIER();
    if (t < 3) tile[(t + 1) % 2][ME] = x[(t + 1) * 128 + ME];
    out[t * 128 + ME] = tile[t % 2][127 - ME];
  }
}
KERNEL(single_buffer, 1, 128) {
  __shared__ int tile[128];
  for (int t = 0; t < 4; ++t) {
    tile[ME] = x[t * 128 + ME];
    __syncthreads();
    out[t * 128 + ME] = tile[127 - ME];
    BARRIER();
  }
}
KERNEL(copies_waited_for, 2, 64) {
  __shared__ __align__(16) int tile[64];
  __pipeline_memcpy_async(tile + ME, x + I, 4);
  __pipeline_commit();
  if (!racy) __pipeline_wait_prior(0);
  __syncthreads();
  out[I] = tile[63 - ME];
}
KERNEL(copies_and_a_barrier, 2, 64) {
  __shared__ __align__(16) int tile[64];
  __pipeline_memcpy_async(tile + ME, x + I, 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  BARRIER();
  out[I] = tile[63 - ME];
}
KERNEL(own_copies, 2, 64) {
  __shared__ __align__(16) int tile[64];
  __pipeline_memcpy_async(tile + ME, x + I, 4);
  __pipeline_commit();
  if (!racy) __pipeline_wait_prior(0);
  out[I] = tile[ME];
}
KERNEL(pipeline_of_two_stages, 1, 64) {
  __shared__ __align__(16) int tile[2][64];
  auto fetch = [&](int t) {
    if (t < 4) __pipeline_memcpy_async(&tile[t % 2][ME], x + t * 64 + ME, 4);
    __pipeline_commit();
  };
  fetch(0);
  for (int t = 0; t < 4; ++t) {
    fetch(t + 1);
    __pipeline_wait_prior(racy ? 2 : 1);
    __syncthreads();
    out[t * 64 + ME] = tile[t % 2][63 - ME];
    __syncthreads();
  }
}
KERNEL(stage_filled_too_early, 1, 64) {
  __shared__ __align__(16) int tile[2][64];
  for (int t = 0; t < 4; ++t) {
    __pipeline_memcpy_async(&tile[t % 2][ME], x + t * 64 + ME, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[t * 64 + ME] = tile[t % 2][63 - ME] + tile[0][0];
    BARRIER();
  }
}
KERNEL(halo, 1, 64) {
  __shared__ int tile[66];
  tile[ME + 1] = x[ME + 1];
  if (ME < 2) tile[ME * 65] = x[ME * 65];
  BARRIER();
  out[ME] = tile[ME] + tile[ME + 1] + tile[ME + 2];
}
KERNEL(transposed, 1, 64) {
  __shared__ int tile[8][9];
  tile[ME / 8][ME % 8] = x[ME];
  BARRIER();
  out[ME] = tile[ME % 8][ME / 8];
}
KERNEL(in_place, 1, 64) {
  int other = out[63 - ME];
  BARRIER();
  out[ME] = other + 1;
}
