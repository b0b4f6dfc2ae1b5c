#include "races.cuh"
KERNEL(push, 4, 128) {
  for (int e = rows[I]; e < rows[I + 1]; ++e) {
    if (racy) out[cols[e]] += x[I];
    else atomicAdd(out + cols[e], x[I]);
  }
}
KERNEL(pull, 4, 128) {
  int sum = 0;
  for (int e = rows[I]; e < rows[I + 1]; ++e) sum += racy ? out[cols[e]] : x[cols[e]];
  out[I] = sum + 1;
}
KERNEL(shortest_paths, 4, 128) {
  int far = x[I];
  for (int e = rows[I]; e < rows[I + 1]; ++e) {
    if (racy) out[cols[e]] = min(out[cols[e]], -far);
    else atomicMin(out + cols[e], -far);
  }
}
KERNEL(frontier, 4, 128) {
  if (x[I] > 7) {
    int at = racy ? flags[0]++ : atomicAdd(flags, 1);
    out[at] = I;
  }
}
KERNEL(visited_once, 4, 128) {
  for (int e = rows[I]; e < rows[I + 1]; ++e) {
    int v = cols[e];
    if (racy ? out[v] == 0 : atomicCAS(out + v, 0, I + 1) == 0) {
      if (racy) out[v] = I + 1;
      atomicAdd(flags, 1);
    }
  }
}
KERNEL(changed, 4, 128) {  // rounds, with the whole grid between them
  auto grid = cooperative_groups::this_grid();
  int *from = out, *to = flags;
  from[I] = I;
  grid.sync();
  for (int round = 0; round < 3; ++round) {
    int least = from[I];
    for (int e = rows[I]; e < rows[I + 1]; ++e) least = min(least, from[cols[e]]);
    to[I] = least;
    if (!racy) grid.sync();
    int* swapped = from;
    from = to, to = swapped;
  }
}
KERNEL(queue_of_a_block, 4, 128) {
  __shared__ int queue[128], tail, begin;
  if (ME == 0) tail = 0;
  __syncthreads();
  if (x[I] % 2) queue[atomicAdd(&tail, 1)] = I;
  __syncthreads();
  if (ME == 0) begin = atomicAdd(flags, tail);
  BARRIER();
  if (ME < tail) out[begin + ME] = queue[ME];
}
KERNEL(degrees, 4, 128) {
  for (int e = I; e < rows[n]; e += gridDim.x * blockDim.x) {
    if (racy) out[cols[e]]++;
    else atomicInc((unsigned*)out + cols[e], 1 << 30);
  }
}
KERNEL(independent_set, 4, 128) {
  bool best = true;
  for (int e = rows[I]; e < rows[I + 1]; ++e) best &= cols[e] <= I;
  if (best)
    for (int e = rows[I]; e < rows[I + 1]; ++e) {
      if (racy) out[cols[e]] = I;
      else atomicMax(out + cols[e], I);
    }
}
