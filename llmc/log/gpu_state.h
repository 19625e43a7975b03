// Reads temperature, power, clock and memory of an NVIDIA GPU by NVML, the driver's library, which is loaded while the
// program runs. Where there is no such library, as on machines without a driver, nothing is known.
#pragma once
#include "../base/base.h"

typedef struct {
    void *library, *device; // NULL: no library, or no such GPU in it
} GpuMonitor;

// The GPU's state; NaN stands for a value that NVML does not tell.
typedef struct {
    bool is_known;               // something could be read
    double celsius, watts, mhz;  // of the multiprocessors' clock
    double bytes_used, bytes;    // of memory, all processes together
    const char* throttled;       // why the clock is lowered: "power", "heat", "power supply"; NULL: it is not
} GpuState;

// Loads `library` and finds the GPU with this UUID (32 hexadecimal digits, Backend.device_identity). An empty UUID, of
// a CPU, loads nothing.
void gpu_monitor_open(GpuMonitor* m, const char* library, const char* uuid);
void gpu_monitor_close(GpuMonitor* m);

// Takes some microseconds to milliseconds.
GpuState gpu_state(const GpuMonitor* m);
