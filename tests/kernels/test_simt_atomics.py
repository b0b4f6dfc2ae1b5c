"""Atomic functions: each thread's own contribution counts, and each is told what was there before."""

import ml_dtypes
import numpy as np
import pytest
from _simt import Kernels, blank

pytestmark = pytest.mark.usefixtures("simt_cache")

SOURCE = r"""
#define ME threadIdx.x
template <class T> __device__ T zero() { return T(0.0f); }
template <> __device__ __half2 zero<__half2>() { return __floats2half2_rn(0, 0); }
template <> __device__ __nv_bfloat162 zero<__nv_bfloat162>() { return __floats2bfloat162_rn(0, 0); }

template <class T>
__global__ void added(T* out, const T* x) {
  __shared__ T sum;
  if (ME == 0) sum = zero<T>();
  __syncthreads();
  atomicAdd(&sum, x[ME]);
  __syncthreads();
  if (ME == 0) out[0] = sum;
}
template <class T>
__global__ void taken(T* out, const T* x) {
  __shared__ T s[9];
  if (ME < 9) s[ME] = x[64];
  __syncthreads();
  atomicSub(s, x[ME]), atomicMin(s + 1, x[ME]), atomicMax(s + 2, x[ME]), atomicAnd(s + 3, x[ME]);
  atomicOr(s + 4, x[ME]), atomicXor(s + 5, x[ME]), atomicAdd_block(s + 6, x[ME]), atomicMax_system(s + 7, x[ME]);
  __syncthreads();
  if (ME < 8) out[ME] = s[ME];
}
__global__ void tickets(int* out, unsigned* out_left) {
  __shared__ int next;
  __shared__ unsigned up, down;
  if (ME == 0) next = 0, up = 0, down = 5;
  __syncthreads();
  out[atomicAdd(&next, 1)] = 1;
  atomicInc(&up, 6), atomicDec(&down, 9);
  __syncthreads();
  if (ME == 0) out_left[0] = up, out_left[1] = down;
}
__global__ void exchanged(int* out, const int* x) {
  __shared__ int held, sum;
  if (ME == 0) held = 1000, sum = 0;
  __syncthreads();
  atomicAdd(&sum, atomicExch(&held, x[ME]));
  __syncthreads();
  if (ME == 0) out[0] = sum + held;
}
__global__ void exchanged_floats(float* out) {
  __shared__ float held;
  if (ME == 0) {
    held = 1.5f;
    out[0] = atomicExch(&held, 2.5f), out[1] = held;
  }
}
__device__ float max_of(float* at, float v) {
  int* bits = reinterpret_cast<int*>(at), old = *reinterpret_cast<volatile int*>(bits), seen;
  do {
    seen = old;
    if (__int_as_float(seen) >= v) break;
    old = atomicCAS(bits, seen, __float_as_int(v));
  } while (old != seen);
  return __int_as_float(old);
}
__global__ void in_loops(float* out, double* out_sum, unsigned short* out_short, const float* x) {
  __shared__ float most;
  __shared__ unsigned long long sum;
  __shared__ unsigned short narrow;
  if (ME == 0) most = -1e30f, sum = 0, narrow = 7;
  __syncthreads();
  max_of(&most, x[ME]);
  unsigned long long seen, old = atomicAdd(&sum, 0ull);
  do {
    seen = old;
    old = atomicCAS(&sum, seen, __double_as_longlong(__longlong_as_double(seen) + x[ME]));
  } while (old != seen);
  while (atomicCAS(&narrow, (unsigned short)(7 + ME), (unsigned short)(8 + ME)) != 7 + ME);
  __syncthreads();
  if (ME == 0) out[0] = most, out_sum[0] = __longlong_as_double(sum), out_short[0] = narrow;
}
// A loop that waits for another thread of the warp or block: each is written as on a GPU.
template <class Lock, class Unlock>
__device__ void guarded(int* out, Lock lock, Unlock unlock) {
  __shared__ int held, count;
  if (ME == 0) held = 0, count = 0;
  __syncthreads();
  for (bool done = false; !done;) {
    if (lock(&held)) {
      atomicExch(&count, atomicAdd(&count, 0) + 1);
      __threadfence_block();
      unlock(&held);
      done = true;
    }
  }
  __syncthreads();
  if (ME == 0) out[0] = count;
}
__global__ void locked_by_swap(int* out) {
  guarded(out, [](int* at) { return atomicCAS(at, 0, 1) == 0; }, [](int* at) { atomicExch(at, 0); });
}
__global__ void locked_by_exchange(int* out) {
  guarded(out, [](int* at) { return atomicExch(at, 1) == 0; }, [](int* at) { atomicSub(at, 1); });
}
__global__ void in_turn(int* out) {
  __shared__ int turn;
  if (ME == 0) turn = 0;
  __syncthreads();
  while (atomicAdd(&turn, 0) != ME);
  out[ME] = atomicAdd(&turn, 1);
}
__global__ void warps_in_turn(int* out) {
  __shared__ int turn;
  if (ME == 0) turn = 0;
  __syncthreads();
  int warp = 2 - ME / 32;
  while (*(volatile int*)&turn != warp) __nanosleep(20);
  __syncwarp();
  if (ME % 32 == 0) out[warp] = atomicExch(&turn, warp + 1);
}
__device__ unsigned bins[8];
__global__ void counted(unsigned* out, const int* x, int n) {
  if (blockIdx.x == 0 && ME < 8) out[ME] = ME;
  for (int i = blockIdx.x * blockDim.x + ME; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i]], 1u);
}
"""
TYPES = {
    "int": np.int32,
    "unsigned": np.uint32,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "double": np.float64,
    "__half": np.float16,
    "__nv_bfloat16": ml_dtypes.bfloat16,
}
PAIRS = {"__half2": np.float16, "__nv_bfloat162": ml_dtypes.bfloat16}
WHOLE = ("int", "unsigned", "unsigned long long")


@pytest.fixture(scope="module")
def kernels(simt_cache, tmp_path_factory):
    instances = (*(f"added<{t}>" for t in (*TYPES, *PAIRS)), *(f"taken<{t}>" for t in WHOLE))
    return Kernels(tmp_path_factory.mktemp("atomics"), SOURCE, *instances)


@pytest.mark.parametrize("c_type", TYPES)
def test_sums_of_every_type(kernels, c_type):
    """Of few and small numbers, so that no order rounds."""
    x = np.random.default_rng(1).integers(0, 5, 64).astype(TYPES[c_type])
    found = kernels.right(f"added<{c_type}>", block=64, out=blank(1, x.dtype), x=x)
    assert found.astype(float).tolist() == [x.astype(float).sum()]


@pytest.mark.parametrize("c_type", PAIRS)
def test_sums_of_pairs(kernels, c_type):
    x = np.random.default_rng(1).integers(0, 5, (64, 2)).astype(PAIRS[c_type])
    found = kernels.right(f"added<{c_type}>", block=64, out=blank(2, x.dtype), x=x)
    assert found.astype(float).tolist() == x.astype(float).sum(axis=0).tolist()


@pytest.mark.parametrize("c_type", WHOLE)
def test_what_integers_have_besides(kernels, c_type):
    dtype = TYPES[c_type]
    x = np.random.default_rng(2).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 65, dtype=dtype)
    found = kernels.right(f"taken<{c_type}>", block=64, out=blank(8, dtype), x=x)
    with np.errstate(over="ignore"):
        wanted = [
            x[64] - x[:64].sum(dtype=dtype),
            x.min(),
            x.max(),
            np.bitwise_and.reduce(x),
            np.bitwise_or.reduce(x),
            np.bitwise_xor.reduce(x),
            x.sum(dtype=dtype),
            x.max(),
        ]
    assert found.tolist() == wanted


def test_nobody_gets_the_same_ticket(kernels):
    tickets, left = kernels.right("tickets", block=100, out=blank(100, np.int32), out_left=blank(2, np.uint32))
    assert tickets.tolist() == [1] * 100
    up, down = 0, 5
    for _ in range(100):
        up = 0 if up >= 6 else up + 1
        down = 9 if down == 0 or down > 9 else down - 1
    assert left.tolist() == [up, down]


def test_what_is_exchanged_is_not_lost(kernels):
    x = np.arange(50, dtype=np.int32)
    assert kernels.right("exchanged", block=50, out=blank(1, np.int32), x=x).tolist() == [1000 + x.sum()]
    assert kernels.right("exchanged_floats", block=32, out=blank(2)).tolist() == [1.5, 2.5]


def test_loops_of_compare_and_swap(kernels):
    x = np.random.default_rng(5).integers(-99, 99, 96).astype(np.float32)
    outs = {"out": blank(1), "out_sum": blank(1, np.float64), "out_short": blank(1, np.uint16)}
    most, total, narrow = kernels.right("in_loops", block=96, **outs, x=x)
    assert (most[0], total[0], narrow[0]) == (x.max(), x.sum(), 7 + 96)


@pytest.mark.parametrize("entry", ["locked_by_swap", "locked_by_exchange"])
def test_a_lock_is_held_by_one_thread(kernels, entry):
    assert kernels.right(entry, block=96, out=blank(1, np.int32)).tolist() == [96]


def test_who_waits_for_another_thread_lets_it_run(kernels):
    assert kernels.right("in_turn", block=96, out=blank(96, np.int32)).tolist() == [*range(96)]
    found = kernels.right("warps_in_turn", block=96, out=blank(3, np.int32))
    assert found.tolist() == [0, 1, 2]


def test_globals_keep_what_launches_add(kernels):
    x = np.random.default_rng(6).integers(0, 8, 500).astype(np.int32)
    assert kernels.right("counted", grid=4, block=32, out=blank(8, np.uint32), x=x, n=500).tolist() == [*range(8)]
