#include <cuda_fp16.h>
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__global__ void memory(int* out, const int* in) {
  __shared__ __align__(16) int s[512]; extern __shared__ int dyn[];
  int t = threadIdx.x, a, b, c, d; float x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(in + 4 * t));
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(at(s + 4 * t)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
  asm volatile("bar.sync 0;");
  asm volatile("ld.shared.u32 %0, [%1+4];" : "=r"(a) : "r"(at(s + 4 * ((t + 1) % 64))));
  asm volatile("{ .reg .u64 p; .reg .u32 q; cvta.to.shared.u64 p, %0; cvt.u32.u64 q, p; st.shared.u32 [q], %1; }" :: "l"(dyn + t), "r"(a));
  asm volatile("barrier.sync.aligned 0, 64;");
  asm volatile("ld.u32 %0, [%1];" : "=r"(b) : "l"(dyn + (t + 5) % 64));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(s + t)), "l"(in + t));
  asm volatile("cp.async.commit_group;\ncp.async.wait_group %0;" :: "n"(0));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at(s + 64 + 4 * t)), "l"(in + 4 * t), "r"(8)); asm volatile("cp.async.wait_all;");
  __syncthreads();
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" :: "l"(out + 2 * t), "r"(b), "r"(s[(t + 1) % 64]));
  out[128 + t] = s[64 + 4 * t + 1] + s[64 + 4 * t + 2];
  asm volatile("{.reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(c) : "l"(s + 3)); out[192 + t] = c;
}
__global__ void atomics(int* out) {
  int t = threadIdx.x, old; __shared__ unsigned s; if (!t) s = 0, out[0] = 0, out[1] = 1000, out[2] = 0, out[3] = 0, out[4] = 0;
  float one = 1; __syncthreads();
  asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(out), "r"(1) : "memory");
  asm volatile("red.relaxed.gpu.global.min.s32 [%0], %1;" :: "l"(out + 1), "r"(t - 7) : "memory");
  asm volatile("red.global.add.f32 [%0], %1;" :: "l"(out + 2), "f"(one) : "memory");
  asm volatile("atom.shared.inc.u32 %0, [%1], 9;" : "=r"(old) : "r"(at(&s)));
  asm volatile("{ .reg .b32 w; L: atom.acq_rel.cta.global.cas.b32 w, [%0], 0, 1; .reg .pred p; setp.ne.b32 p, w, 0; @p bra L; }" :: "l"(out + 3) : "memory");
  out[4] = out[4] + t;
  asm volatile("atom.release.cta.global.exch.b32 %0, [%1], 0;" : "=r"(old) : "l"(out + 3) : "memory");
  __syncthreads(); if (!t) out[5] = s;
}
__global__ void product(float* out, const __half* a, const __half* b) {  // 16 x 16 by 16 x 8
  __shared__ __align__(16) __half sa[256], sb[128]; int t = threadIdx.x;
  for (int i = t; i < 256; i += 32) sa[i] = a[i]; for (int i = t; i < 128; i += 32) sb[i] = b[i];
  __syncwarp();
  unsigned ra[4], rb[2]; float c[4] = {1, 1, 1, 1};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(at(sa + t % 16 * 16 + t / 16 * 8)));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(at(sb + t % 16 * 8)));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
  for (int i = 0; i < 4; ++i) out[(t / 4 + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = c[i];
}
__global__ void bytes(int* out, const int* a, const int* b) {  // s8: a 16 x 32, b 8 x 32 by columns
  int t = threadIdx.x, g = t / 4, q = t % 4, d[4];
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[g * 8 + q]), "r"(a[g * 8 + 64 + q]), "r"(a[g * 8 + q + 4]), "r"(a[g * 8 + 64 + q + 4]), "r"(b[g * 8 + q]), "r"(b[g * 8 + q + 4]), "r"(0));
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + q * 2 + i % 2] = d[i];
}
__global__ void doubles(double* out, const double* a, const double* b) {  // 8 x 4 by 4 x 8
  int t = threadIdx.x; double d0, d1;
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%4,%4};" : "=d"(d0), "=d"(d1) : "d"(a[t]), "d"(b[t % 4 * 8 + t / 4]), "d"(0.0));
  out[t * 2] = d0, out[t * 2 + 1] = d1;
}
__global__ void floats(float* out, const float* a, const float* b) {  // tf32: 16 x 8 by 8 x 8
  int t = threadIdx.x, g = t / 4, q = t % 4; float d[4];
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};" : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "r"(__float_as_uint(a[g * 8 + q])), "r"(__float_as_uint(a[g * 8 + 64 + q])), "r"(__float_as_uint(a[g * 8 + q + 4])), "r"(__float_as_uint(a[g * 8 + 64 + q + 4])), "r"(__float_as_uint(b[q * 8 + g])), "r"(__float_as_uint(b[q * 8 + 32 + g])), "f"(0.0f));
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + q * 2 + i % 2] = d[i];
}
__global__ void parts(int* out) {  // two halves of a block, each with a barrier of its own
  __shared__ int s[128]; int t = threadIdx.x, half = t / 64;
  asm volatile("st.shared.u32 [%0], %1;" :: "r"(at(s + t)), "r"(t));
  if (half) asm volatile("bar.sync 2, 64;"); else asm volatile("bar.sync 1, 64;");
  out[t] = s[half * 64 + (t + 1) % 64];
}
__global__ void raced(int* out) {
  __shared__ int s[64]; int t = threadIdx.x;
  asm volatile("st.shared.u32 [%0], %1;" :: "r"(at(s + t)), "r"(t));  // race
  out[t] = s[63 - t];
}
__global__ void beyond(int* out, const int* in, int n) {
  int t = threadIdx.x, v = 0;
  asm volatile("{ .reg .pred p; setp.le.s32 p, %2, %3; @p ld.global.s32 %0, [%1]; }" : "+r"(v) : "l"(in + t), "r"(t), "r"(n));  // beyond
  out[t] = v;
}
template <int how>
__global__ void flag(int* out) {
  int v;
  if (threadIdx.x == 0) {
    out[2] = 7;  // tells
    if (how == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(out) : "memory");
    if (how == 2) asm volatile("fence.acq_rel.gpu;");
    if (how > 0) asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" :: "l"(out) : "memory");
  } else if (threadIdx.x == 32) {
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(out) : "memory"); while (v != 1);
    out[1] = out[2];  // told
  }
}
__global__ void early(int* out, const int* in) {
  __shared__ int s[32]; int t = threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group;" :: "r"(at(s + t)), "l"(in + t));  // copy
  out[t] = s[t];  // early
  asm volatile("cp.async.wait_all;");
}
__global__ void misaligned(int* out, const int* in) { int a, b; asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "l"(in + 1));  // odd
  out[threadIdx.x] = a; }
__global__ void unknown(int* out) { if (threadIdx.x == 3) asm volatile("wgmma.fence.sync.aligned;\n");  // unknown
  out[threadIdx.x] = 1; }
__global__ void far(int* out) { int x; asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(0x7f0000001000ull));  // far
  out[threadIdx.x] = x; }
__global__ void traps(int* out) { if (threadIdx.x == 3) asm volatile("trap;");  // trap
}
__global__ void never(int* out) {
  if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");  // never
}
__global__ void refused(int* out, int n) {
  __shared__ unsigned long long bar;
  auto at = static_cast<unsigned>(__cvta_generic_to_shared(&bar));
  if (n == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(1));  // refused 0
  if (n == 1) asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%0];" ::"r"(at), "l"(out), "r"(16));  // refused 1
  if (n == 2) asm volatile("{\n.reg .pred P1;\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(at), "r"(0));  // refused 2
  if (n == 3) asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at));  // refused 3
  if (n == 4) asm volatile("barrier.cluster.arrive;");  // refused 4
  if (n == 5) asm volatile("barrier.sync %0, 64;" ::"r"(17));  // refused 5
  if (n == 6) asm volatile("bar.sync 1, 20;");  // refused 6
  if (n == 7) asm volatile("bar.arrive 1;");  // refused 7
}
