#include "saver.h"
#include "../base/host_memory.h"
#include "../base/threads.h"
#include <signal.h>

float* saver_blocks(Saver* s, const Optimizer* o) {
    const size_t bytes = snapshot_bytes(o);
    if (!s->blocks && host_memory_available() / 2 >= bytes) { s->blocks = malloc(bytes); }
    return s->blocks;
}

static void saver_write(Saver* s) {
    s->path = checkpoint_write(s->out, &s->snapshot, &s->err);
    atomic_store(&s->is_done, true);
}

static void* saver_thread(void* saver) {
    use_threads(1);
    saver_write(saver);
    return NULL;
}

void saver_begin(Saver* s, const char* out, const Snapshot* snapshot) {
    sigset_t all, before;
    if (snapshot != &s->snapshot) { snapshot_free(&s->snapshot); }
    s->is_busy = true;
    s->has_thread = false;
    atomic_store(&s->is_done, false);
    s->out = out;
    s->snapshot = *snapshot;
    if (snapshot->blocks) {
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before); // signals are the main thread's
        s->has_thread = pthread_create(&s->thread, NULL, saver_thread, s) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (!s->has_thread) { saver_write(s); }
}

SaverState saver_poll(Saver* s, bool waits, char** path, Error* err) {
    if (!s->is_busy || (!waits && !atomic_load(&s->is_done))) { return SAVER_GOES_ON; }
    if (s->has_thread) { pthread_join(s->thread, NULL); }
    s->is_busy = false;
    *path = s->path;
    *err = s->err;
    if (!s->path) { return SAVER_FAILED; }
    if (s->snapshot.optimizer->model->backend->is_host) { // where memory is the model's too
        free(s->blocks);
        s->blocks = NULL;
    }
    return SAVER_SAVED;
}

void saver_close(Saver* s) {
    char* path;
    Error err;
    if (saver_poll(s, true, &path, &err) == SAVER_SAVED) { free(path); }
    snapshot_free(&s->snapshot);
    free(s->blocks);
    s->blocks = NULL;
}
