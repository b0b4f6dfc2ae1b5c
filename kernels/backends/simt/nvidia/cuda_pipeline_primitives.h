// Copies to shared memory in the background are made at once: what is read too early is right here and not on a GPU.
#pragma once

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
  if (bytes == 16) *static_cast<uint4*>(to) = *reinterpret_cast<uint4*>(copied);
  else if (bytes == 8) *static_cast<uint2*>(to) = *reinterpret_cast<uint2*>(copied);
  else *static_cast<unsigned*>(to) = *reinterpret_cast<unsigned*>(copied);
}
SIMT_INLINE void __pipeline_commit() {}
SIMT_INLINE void __pipeline_wait_prior(size_t) {}
