// A stand-in for libnvidia-ml.so.1 with one GPU, for test_panel.c.
#include <string.h>

static int opened;

int nvmlInit_v2(void) { opened++; return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
    const int is_known = opened && !strcmp(uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
    if (is_known) { *device = &opened; }
    return is_known ? 0 : 6; // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* x) {
    *x = 61;
    return device != &opened || sensor != 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* x) { *x = 687400; return device != &opened; }
int nvmlDeviceGetClockInfo(void* device, int clock, unsigned* x) { (void)device; *x = 7; return clock == 1 ? 3 : 0; }
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* m) {
    m[0] = 150ull << 30; // total, free, used
    m[1] = 52ull << 30;
    m[2] = 98ull << 30;
    return device != &opened;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* x) {
    *x = 0x1 | 0x4 | 0x20; // idle, power cap and heat: heat is named
    return device != &opened;
}
