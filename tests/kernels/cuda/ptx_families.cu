// Rows of `out`: what an instruction gives, and what it should.
#include <cuda_fp16.h>
#define ROW(...) { unsigned long long r_[] = {__VA_ARGS__}; for (auto v : r_) out[n++ * 32 + threadIdx.x % 32] = v; }
__device__ unsigned long long f(float x) { return __float_as_uint(x); }
__global__ void numbers(unsigned long long* out) {
  int n = 0; int t = threadIdx.x;
  unsigned a = 0x9e3779b9u * (t + 1), b = 0x85ebca6bu * (t + 3), c; unsigned long long A = a * 0x1234567890abcdefull, B = b * 0xfedcba9876543211ull, C;
#define U2(OP, WANT) asm(OP " %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b)); ROW(c, (unsigned)(WANT));
  U2("add.u32", a + b) U2("sub.s32", a - b) U2("mul.lo.u32", a * b) U2("mul.hi.u32", __umulhi(a, b)) U2("mul.hi.s32", __mulhi(a, b))
  U2("min.s32", min((int)a, (int)b)) U2("max.u32", max(a, b)) U2("and.b32", a & b) U2("xor.b32", a ^ b) U2("or.b32", a|b) U2("div.u32", a / (b|1) * 0 + a / b) U2("rem.s32", (int)a % (int)b)
  asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(7)); ROW(c, (unsigned)(a * b + 7));
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(C) : "r"(a), "r"(b), "l"(A)); ROW(C, (unsigned long long)a * b + A);
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(C) : "r"(a), "r"(b)); ROW(C, (unsigned long long)((long long)(int)a * (int)b));
  asm("mul.hi.u64 %0, %1, %2;" : "=l"(C) : "l"(A), "l"(B)); ROW(C, __umul64hi(A, B));
  asm("shl.b32 %0, %1, 3;" : "=r"(c) : "r"(a)); ROW(c, a << 3);
  asm("shr.s32 %0, %1, 40;" : "=r"(c) : "r"(a)); ROW(c, (unsigned)((int)a >> 31));
  asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(c) : "r"(a), "r"(b)); ROW(c, __byte_perm(a, b, 0x5410));
  asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(c) : "r"(a), "r"(b), "r"(0x0ff0f00fu)); ROW(c, (a & b) | (a & 0x0ff0f00fu) | (b & 0x0ff0f00fu));
  asm("bfe.u32 %0, %1, 5, 9;" : "=r"(c) : "r"(a)); ROW(c, a >> 5 & 511);
  asm("bfe.s32 %0, %1, 5, 9;" : "=r"(c) : "r"(a)); ROW(c, (unsigned)((int)(a << 18) >> 23));
  asm("bfi.b32 %0, %1, %2, 4, 8;" : "=r"(c) : "r"(a), "r"(b)); ROW(c, (b & ~0xff0u) | (a & 0xff) << 4);
  asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(t)); ROW(c, __funnelshift_l(a, b, t));
  asm("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(c) : "r"(a), "r"(b), "r"(t + 8)); ROW(c, __funnelshift_rc(a, b, t + 8));
  asm("popc.b32 %0, %1;" : "=r"(c) : "r"(a)); ROW(c, __popc(a)); asm("clz.b64 %0, %1;" : "=r"(c) : "l"(A)); ROW(c, __clzll(A));
  asm("brev.b32 %0, %1;" : "=r"(c) : "r"(a)); ROW(c, __brev(a)); asm("bfind.u32 %0, %1;" : "=r"(c) : "r"(a >> 3)); ROW(c, 31 - __clz(a >> 3));
  unsigned lo, hi; asm("add.cc.u32 %0, %2, %4; addc.u32 %1, %3, %5;" : "=r"(lo), "=r"(hi) : "r"((unsigned)A), "r"((unsigned)(A >> 32)), "r"((unsigned)B), "r"((unsigned)(B >> 32)));
  ROW((unsigned long long)hi << 32 | lo, A + B);
  asm("sub.cc.u32 %0, %1, %2;" : "=r"(lo) : "r"((unsigned)A), "r"((unsigned)B)); asm("subc.u32 %0, %1, %2;" : "=r"(hi) : "r"((unsigned)(A >> 32)), "r"((unsigned)(B >> 32)));
  ROW((unsigned long long)hi << 32 | lo, A - B);
  asm("{ .reg .pred p, q; setp.lt.and.s32 p|q, %1, %2, 1; @p mov.u32 %0, 11; @!p add.s32 %0, %1, 5; selp.b32 %0, %0, 7, p; }" : "=r"(c) : "r"(a), "r"(b)); ROW(c, (int)a < (int)b ? 11u : 7u);
  asm("{\n\t.reg .u32 i;\n\tmov.u32 i, 0;\n\tmov.u32 %0, 0;\nLOOP_%=:\n\tadd.u32 %0, %0, i; // sum\n\tadd.u32 i, i, 1;\n\t.reg .pred p; setp.le.u32 p, i, 10; @p bra LOOP_%=;\n\t}" : "=r"(c)); ROW(c, 55);
  unsigned short h0, h1; asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; mov.b16 %0, l; mov.u16 %1, h; }" : "=h"(h0), "=h"(h1) : "r"(a)); ROW(h0, a & 0xffff, h1, a >> 16);
  asm("mov.b64 %0, {%1, %2};" : "=l"(C) : "r"(a), "r"(b)); ROW(C, (unsigned long long)b << 32 | a);
  asm("mov.u32 %0, %%laneid;" : "=r"(c)); ROW(c, t % 32); asm("mov.u32 %0, %%ctaid.x;" : "=r"(c)); ROW(c, blockIdx.x); asm("mov.u32 %0, %tid.x;" : "=r"(c)); ROW(c, t);
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(c)); ROW(c, (1u << t % 32) - 1);
}
__global__ void reals(unsigned long long* out) {
  int n = 0; int t = threadIdx.x; float x = (t - 11) * 0.37f, y = 1.5f - t * 0.11f, z; double X = x * 1.7, Y = y, Z;
#define F2(OP, WANT) asm(OP " %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); ROW(f(z), f(WANT));
#define F1(OP, ARG, WANT) asm(OP " %0, %1;" : "=f"(z) : "f"(ARG)); ROW(f(z), f(WANT));
  F2("add.f32", x + y) F2("sub.rn.f32", x - y) F2("mul.rz.f32", __fmul_rz(x, y)) F2("add.rp.f32", __fadd_ru(x, y)) F2("div.rn.f32", x / y) F2("min.f32", fminf(x, y)) F2("max.ftz.f32", fmaxf(x, y))
  F2("mul.sat.f32", __saturatef(x * y))
  F1("ex2.approx.ftz.f32", x, exp2f(x)) F1("lg2.approx.f32", x * x, __log2f(x * x)) F1("rcp.approx.f32", y, 1 / y) F1("rsqrt.approx.f32", x * x, rsqrtf(x * x)) F1("sqrt.rn.f32", x * x, sqrtf(x * x)) F1("sin.approx.f32", x, __sinf(x)) F1("cos.approx.f32", x, __cosf(x)) F1("tanh.approx.f32", x, tanhf(x)) F1("abs.f32", x, fabsf(x)) F1("neg.f32", x, -x)
  asm("fma.rn.f32 %0, %1, %2, 0f3F800000;" : "=f"(z) : "f"(x), "f"(y)); ROW(f(z), f(fmaf(x, y, 1.0f)));
  asm("fma.rn.f64 %0, %1, %2, 2.5;" : "=d"(Z) : "d"(X), "d"(Y)); ROW(__double_as_longlong(Z), __double_as_longlong(fma(X, Y, 2.5)));
  int i; unsigned u; long long l; unsigned short h;
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(i) : "f"(x * 3)); ROW((unsigned)i, (unsigned)__float2int_rn(x * 3));
  asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(u) : "f"(x * 3)); ROW(u, __float2uint_rz(x * 3));
  asm("cvt.rz.f32.s32 %0, %1;" : "=f"(z) : "r"(0x7fffff81 - t)); ROW(f(z), f(__int2float_rz(0x7fffff81 - t)));
  asm("cvt.s64.s32 %0, %1;" : "=l"(l) : "r"(-t)); ROW((unsigned long long)l, (unsigned long long)(long long)-t);
  asm("cvt.u32.u64 %0, %1;" : "=r"(u) : "l"(0x123456789abull + t)); ROW(u, 0x456789abu + t);
  asm("cvt.sat.u8.s32 %0, %1;" : "=r"(u) : "r"(t * 20 - 100)); ROW(u, (unsigned)min(max(t * 20 - 100, 0), 255));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); ROW(h, __half_as_ushort(__float2half_rn(x)));
  asm("cvt.f32.f16 %0, %1;" : "=f"(z) : "h"(h)); ROW(f(z), f(__half2float(__ushort_as_half(h))));
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(x), "f"(y)); __half2 w = __floats2half2_rn(y, x); ROW(u, *(unsigned*)&w);
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(x), "f"(y)); __nv_bfloat162 bw = __floats2bfloat162_rn(y, x); ROW(u, *(unsigned*)&bw);
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(h) : "f"(x), "f"(y * 500)); ROW(h, __nv_cvt_float2_to_fp8x2(make_float2(y * 500, x), __NV_SATFINITE, __NV_E4M3));
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(u) : "h"(h)); __half2_raw hr = __nv_cvt_fp8x2_to_halfraw2(h, __NV_E5M2); ROW(u, hr.x | (unsigned)hr.y << 16);
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(x)); ROW(u, (f(x) + 0x1000) & 0xffffe000u);
  unsigned p = *(unsigned*)&w, q; __half2 k = __hfma2(w, w, w); asm("fma.rn.f16x2 %0, %1, %1, %1;" : "=r"(q) : "r"(p)); ROW(q, *(unsigned*)&k);
  k = __hmul2(w, w); asm("mul.f16x2 %0, %1, %1;" : "=r"(q) : "r"(p)); ROW(q, *(unsigned*)&k);
  k = __hmax2(w, __floats2half2_rn(0.5f, 0.5f)); asm("max.f16x2 %0, %1, %2;" : "=r"(q) : "r"(p), "r"(0x38003800)); ROW(q, *(unsigned*)&k);
  asm("{ .reg .pred p; setp.gtu.f32 p, %1, %2; selp.f32 %0, %1, %2, p; }" : "=f"(z) : "f"(x), "f"(y)); ROW(f(z), f(x > y ? x : y));
}
__global__ void warps(unsigned long long* out) {
  int n = 0; int t = threadIdx.x; unsigned a = 0x9e3779b9u * (t + 1), c, m = ~0u; int s = (int)a >> 9, d;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(c) : "r"(a), "r"(t * 7)); ROW(c, __shfl_sync(m, a, t * 7));
  asm volatile("{ .reg .pred p; shfl.sync.up.b32 %0|p, %1, 3, 0x1800, -1; @!p mov.u32 %0, 5; }" : "=r"(c) : "r"(a)); unsigned w = __shfl_up_sync(m, a, 3, 8); ROW(c, t % 8 < 3 ? 5 : w);
  asm volatile("shfl.sync.bfly.b32 %0, %1, 0x10, 0x1f, %2;" : "=r"(c) : "r"(a), "r"(m)); ROW(c, __shfl_xor_sync(m, a, 16));
  asm volatile("shfl.sync.down.b32 %0, %1, 2, 0x1f, %2;" : "=r"(c) : "r"(a), "r"(m)); ROW(c, __shfl_down_sync(m, a, 2));
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }" : "=r"(c) : "r"(a & 4), "r"(m)); ROW(c, __ballot_sync(m, a & 4));
  asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, !p, %2; selp.u32 %0, 1, 0, q; }" : "=r"(c) : "r"(a & 4), "r"(m)); ROW(c, (unsigned)__any_sync(m, !(a & 4)));
  asm volatile("match.any.sync.b32 %0, %1, %2;" : "=r"(c) : "r"(t / 5), "r"(m)); ROW(c, __match_any_sync(m, t / 5));
  asm volatile("redux.sync.add.s32 %0, %1, %2;" : "=r"(d) : "r"(s), "r"(m)); ROW((unsigned)d, (unsigned)__reduce_add_sync(m, s));
  asm volatile("redux.sync.min.s32 %0, %1, %2;" : "=r"(d) : "r"(s), "r"(m)); ROW((unsigned)d, (unsigned)__reduce_min_sync(m, s));
  asm volatile("redux.sync.xor.b32 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(m)); ROW(c, __reduce_xor_sync(m, a));
  asm volatile("{ .reg .pred p; setp.eq.u32 p, %1, 3; bar.red.popc.u32 %0, 0, p; }" : "=r"(c) : "r"(t % 4)); ROW(c, (unsigned)__syncthreads_count(t % 4 == 3));
  asm volatile("activemask.b32 %0;" : "=r"(c)); ROW(c, m);
  asm volatile("bar.warp.sync %0;" :: "r"(m));
}
