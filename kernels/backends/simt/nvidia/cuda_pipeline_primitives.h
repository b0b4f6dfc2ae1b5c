// Copies to shared memory in the background are made at once. What is read too early is right, but for check mode, which
// is told when a thread has waited for its copies.
#pragma once

SIMT_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0,
                                         simt::Place at = simt::here()) {
  if (bytes != 4 && bytes != 8 && bytes != 16)
    simt::fail(simt::Trouble::misaligned, at, "copies of 4, 8 or 16 bytes only");
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes)
    simt::fail(simt::Trouble::misaligned, at, "of a copy to shared memory");
  unsigned char held[16] = {};
  memcpy(held, from, bytes - zeros);  // whole, so that the checker sees one access
  bytes == 16 ? simt::land<16>(to, held) : bytes == 8 ? simt::land<8>(to, held) : simt::land<4>(to, held);
}
SIMT_INLINE void __pipeline_commit() { simt::commit_copies(); }
SIMT_INLINE void __pipeline_wait_prior(size_t but_the_last) { simt::wait_for_copies(but_the_last); }
