// What a program's own code and the host's side know of a launch.
#pragma once
#include <cuda_runtime_api.h>

#include <vector>

#include "../runtime.h"

#define SIMT_NAME(...) #__VA_ARGS__  // of what is launched; of a macro's parameter, or of words that it pastes, what they are then

namespace simt {
struct Config {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
// A launch from where it begins: the kernel that the host calls then, by its parameters' types, notes itself in it.
struct SIMT_API Launching {
  const char* kernel;
  Place at;
  Config how;
  bool cooperative = false, asks = false;  // asks: nothing is run, the kernel only tells its bounds
  bool called = false;
  unsigned long long most_threads = 0;     // as its __launch_bounds__ say; 0: it has none
  const void* call = nullptr;              // thread(call) runs the kernel in a thread
  size_t bytes = 0;                        // of it
  void (*thread)(const void*) = nullptr;
  void (*destroy)(const void*) = nullptr;
  const void* anchor = nullptr;
  std::vector<const void*> pointers;       // what its arguments point to, null where one is no pointer
  Launching* outer;                        // in whose arguments it was begun

  Launching(const char* kernel, Place at, const Config& how, bool cooperative = false, bool asks = false);
  Launching(const Launching&) = delete;
  ~Launching();
};
SIMT_API Launching* launch_of_call();  // that a kernel is called for; null if only its bounds are asked for
SIMT_API bool is_asked();
SIMT_API cudaError_t run_launch();     // the last one that was begun; the error that <<< >>> leaves behind
SIMT_API const char* first_argument(const char* call);
}  // namespace simt
