// Copies to shared memory in the background are made at once. What is read too early is right, but for check mode, which
// is told when a thread has waited for its copies.
#pragma once

namespace simt {
SIMT_UNSEEN inline void copied(void* to, const unsigned char* from, size_t bytes) {
  simt::copies(to, static_cast<int>(bytes), __builtin_return_address(0));
  if (bytes == 16) copy_unseen<uint4>(to, from);
  else if (bytes == 8) copy_unseen<uint2>(to, from);
  else copy_unseen<unsigned>(to, from);
}
}  // namespace simt

SIMT_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0,
                                         simt::Place at = simt::here()) {
  if (bytes != 4 && bytes != 8 && bytes != 16)
    simt::fail(simt::Trouble::misaligned, at, "copies of 4, 8 or 16 bytes only");
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes)
    simt::fail(simt::Trouble::misaligned, at, "of a copy to shared memory");
  // Read and written as the GPU does it: whole, so that the checker sees one access.
  size_t kept = bytes - zeros;
  unsigned char copied[16] = {};
  if (kept == 16) *reinterpret_cast<uint4*>(copied) = *static_cast<const uint4*>(from);
  else if (kept == 8) *reinterpret_cast<uint2*>(copied) = *static_cast<const uint2*>(from);
  else if (kept == 4) *reinterpret_cast<unsigned*>(copied) = *static_cast<const unsigned*>(from);
  else
    for (size_t i = 0; i < kept; ++i) copied[i] = static_cast<const unsigned char*>(from)[i];
  simt::copied(to, copied, bytes);
}
SIMT_INLINE void __pipeline_commit() { simt::commit_copies(); }
SIMT_INLINE void __pipeline_wait_prior(size_t but_the_last) { simt::wait_for_copies(but_the_last); }
