#include "gpu_state.h"
#include <dlfcn.h>

// Constants of nvml.h. All functions return an int, 0 for success; device handles are pointers.
enum { NVML_TEMPERATURE_GPU = 0, NVML_CLOCK_SM = 1 };
static const struct {
    unsigned long long bits; // nvmlClocksEventReason*
    const char* name;
} REASONS[] = {
    {0x20 | 0x40, "heat"},          // SwThermalSlowdown, HwThermalSlowdown
    {0x80 | 0x08, "power supply"},  // HwPowerBrakeSlowdown, HwSlowdown
    {0x04, "power"},                // SwPowerCap
};

// Returns a function of the library in `to`, a pointer to a function pointer; false if there is none.
static bool find(const GpuMonitor* m, const char* name, void* to) {
    void* f = dlsym(m->library, name);
    memcpy(to, &f, sizeof f); // ISO C has no cast from object to function pointers
    return f != NULL;
}

// Finds the device by the UUID with a prefix: of a GPU or of a MIG instance.
static bool find_device(GpuMonitor* m, const char* prefix, const char* uuid) {
    int (*by_uuid)(const char*, void**);
    char text[64];
    snprintf(text, sizeof text, "%s-%.8s-%.4s-%.4s-%.4s-%.12s", prefix, uuid, uuid + 8, uuid + 12, uuid + 16,
             uuid + 20);
    return find(m, "nvmlDeviceGetHandleByUUID", &by_uuid) && by_uuid(text, &m->device) == 0 && m->device;
}

void gpu_monitor_open(GpuMonitor* m, const char* library, const char* uuid) {
    int (*init)(void);
    memset(m, 0, sizeof *m);
    if (strlen(uuid) != 32) { return; }
    m->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!m->library) { return; }
    if (!find(m, "nvmlInit_v2", &init) || init() != 0 ||
        !(find_device(m, "GPU", uuid) || find_device(m, "MIG", uuid))) {
        gpu_monitor_close(m);
    }
}

void gpu_monitor_close(GpuMonitor* m) {
    int (*shutdown)(void);
    if (m->library && find(m, "nvmlShutdown", &shutdown)) { shutdown(); }
    if (m->library) { dlclose(m->library); }
    memset(m, 0, sizeof *m);
}

GpuState gpu_state(const GpuMonitor* m) {
    GpuState s = {false, NAN, NAN, NAN, NAN, NAN, NULL};
    unsigned x = 0;
    unsigned long long reasons = 0;
    struct { unsigned long long total, free, used; } memory; // nvmlMemory_t
    int (*temperature)(void*, int, unsigned*), (*power)(void*, unsigned*), (*clock)(void*, int, unsigned*),
        (*memory_info)(void*, void*), (*throttle)(void*, unsigned long long*);
    if (!m->device) { return s; }
    if (find(m, "nvmlDeviceGetTemperature", &temperature) && !temperature(m->device, NVML_TEMPERATURE_GPU, &x)) {
        s.celsius = x;
    }
    if (find(m, "nvmlDeviceGetPowerUsage", &power) && !power(m->device, &x)) { s.watts = x / 1000.0; }
    if (find(m, "nvmlDeviceGetClockInfo", &clock) && !clock(m->device, NVML_CLOCK_SM, &x)) { s.mhz = x; }
    if (find(m, "nvmlDeviceGetMemoryInfo", &memory_info) && !memory_info(m->device, &memory)) {
        s.bytes_used = (double)memory.used;
        s.bytes = (double)memory.total;
    }
    if (find(m, "nvmlDeviceGetCurrentClocksThrottleReasons", &throttle)) { throttle(m->device, &reasons); }
    for (size_t i = 0; i < sizeof REASONS / sizeof *REASONS && !s.throttled; i++) {
        if (reasons & REASONS[i].bits) { s.throttled = REASONS[i].name; }
    }
    s.is_known = isfinite(s.celsius) || isfinite(s.watts) || isfinite(s.mhz) || isfinite(s.bytes);
    return s;
}
