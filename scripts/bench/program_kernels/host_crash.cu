// planted: host-crash
#include <cstdlib>
struct List {
  List* next;
  int value;
};
int length(const List* l) {
  int n = 0;
#ifdef PLANTED
  while (l->value >= 0) l = l->next, ++n;
#else
  while (l && l->value >= 0) l = l->next, ++n;
#endif
  return n;
}
int main() {
  List second{nullptr, 2}, first{&second, 1};
  int* x;
  cudaMalloc(&x, length(&first) * sizeof(int));
  cudaFree(x);
}
