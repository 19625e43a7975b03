#include "llmc/base/host_memory.h"
#include "test/test.h"
#include <sys/resource.h>

// Writes a file of a made-up system.
static void put(const char* path, const char* text) {
    Error err;
    char *file = test_path(path), *folder = path_folder(file);
    if (!make_directories(folder, &err)) { fatal("%s", err.text); }
    test_write(file, text, strlen(text));
    free(folder);
}

TEST(limits_of_all_groups_above_count) {
    char* root = test_path("v2");
    put("v2/proc/self/cgroup", "0::/slurm/job_7/step_0\n");
    EXPECT(cgroups_memory_left(root) == SIZE_MAX);
    put("v2/sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
    put("v2/sys/fs/cgroup/slurm/job_7/step_0/memory.current", "500\n");
    EXPECT(cgroups_memory_left(root) == SIZE_MAX);
    put("v2/sys/fs/cgroup/slurm/job_7/memory.max", "1000\n");
    put("v2/sys/fs/cgroup/slurm/job_7/memory.current", "600\n");
    EXPECT(cgroups_memory_left(root) == 400);
    put("v2/sys/fs/cgroup/slurm/job_7/memory.stat", "anon 1\ninactive_file 50\n"); // is freed on demand
    EXPECT(cgroups_memory_left(root) == 450);
    put("v2/sys/fs/cgroup/memory.max", "90000\n");
    EXPECT(cgroups_memory_left(root) == 450);
    put("v2/sys/fs/cgroup/slurm/memory.max", "1000\n");
    put("v2/sys/fs/cgroup/slurm/memory.current", "1001\n");
    EXPECT(cgroups_memory_left(root) == 0);
}

TEST(a_container_may_see_its_group_as_the_root) {
    put("inside/proc/self/cgroup", "0::/../../docker/1234\n");
    put("inside/sys/fs/cgroup/memory.max", "1000\n");
    EXPECT(cgroups_memory_left(test_path("inside")) == 1000);
}

TEST(cgroups_of_version_1) {
    char* root = test_path("v1");
    put("v1/proc/self/cgroup", "5:cpuset:/\n4:memory:/jobs/1\n0::/\n");
    put("v1/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("v1/sys/fs/cgroup/memory/jobs/1/memory.limit_in_bytes", "1000\n");
    put("v1/sys/fs/cgroup/memory/jobs/1/memory.usage_in_bytes", "300\n");
    put("v1/sys/fs/cgroup/memory/jobs/1/memory.stat", "inactive_file 1\ntotal_inactive_file 20\n");
    EXPECT(cgroups_memory_left(root) == 720);
}

// A limit counts less what is in use already.
TEST(limits_of_the_process_count_less_its_use) {
    const size_t more = (size_t)64 << 20;
    Error err;
    char* status = read_file("/proc/self/status", NULL, &err);
    struct rlimit before = {0}, limit;
    EXPECT(status && getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    limit.rlim_cur = strtoull(strstr(status, "VmSize:") + strlen("VmSize:"), NULL, 10) * 1024 + more;
    EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
    const size_t available = host_memory_available();
    EXPECT(setrlimit(RLIMIT_AS, &before) == 0);
    EXPECT(available > more / 2 && available <= more);
    free(status);
}

TEST_MAIN()
