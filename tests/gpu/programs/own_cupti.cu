// a program that uses CUPTI itself: it must find CUPTI free
#include "common.cuh"
#include <cupti.h>

static void CUPTIAPI called(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

int main() {
  CUpti_SubscriberHandle subscriber;
  cudaFree(nullptr);
  printf("subscribe: %d\n", static_cast<int>(cuptiSubscribe(&subscriber, called, nullptr)));
  launch(buffer(), 3);
  cudaDeviceSynchronize();
}
