#include "scale_model.h"

// ---------------------------------------------------------------------------------------------------------------------
// communication

static int log2_up(int n) {
    int steps = 0;
    while (((long long)1 << steps) < n) { steps++; }
    return steps;
}

double half_all_reduce_seconds(const Network* net, double bytes, int n) {
    if (n == 1) { return 0; }
    const int here = n < net->per_machine ? n : net->per_machine, machines = (n + here - 1) / here;
    const bool crosses = machines > 1;
    double bandwidth = net->within.bandwidth, step = net->within.latency;
    if (crosses && (here == 1 || net->between.bandwidth < bandwidth)) { bandwidth = net->between.bandwidth; }
    if (crosses && (here == 1 || net->between.latency > step)) { step = net->between.latency; }
    const double ring = (n - 1.0) / n * bytes / bandwidth + (n - 1.0) * step;
    const double tree =
        bytes / bandwidth + log2_up(here) * net->within.latency + log2_up(machines) * net->between.latency;
    return fmin(ring, tree);
}

double scale_reduce_seconds(const Network* net, size_t elements, int n, int mode) {
    const double half = half_all_reduce_seconds(net, (double)elements * sizeof(float), n);
    return mode & SCALE_ZERO ? half : 2 * half;
}

static size_t scale_elements(const ScaleModel* m) {
    return m->first + (size_t)m->num_layers * m->layer + m->last;
}

// ---------------------------------------------------------------------------------------------------------------------
// a step

int scale_rows(long long windows, int most) {
    for (long long rows = most < windows ? most : windows; rows > 1; rows--) {
        if (windows % rows == 0) { return (int)rows; }
    }
    return 1;
}

bool scale_is_possible(const ScaleModel* m, int n) { return m->windows % n == 0; }

MicroTime scale_micro(const ScaleModel* m, int rows) {
    const MicroTime* larger = &m->micro[0];
    for (int i = 0; i < m->micros; i++) {
        if (m->micro[i].rows >= rows) { larger = &m->micro[i]; }
    }
    const double part = (double)rows / larger->rows;
    const MicroTime t = {.rows = rows,
                         .forward = part * larger->forward,
                         .classifier = part * larger->classifier,
                         .layer = part * larger->layer,
                         .embeddings = part * larger->embeddings};
    return t;
}

double micro_seconds(const ScaleModel* m, const MicroTime* t) {
    return t->forward + t->classifier + m->num_layers * t->layer + t->embeddings;
}

// Returns the seconds of communication that are left when backward ends: each range is sent as soon as it is ready and
// the one before has been sent.
static double scale_exposed(const ScaleModel* m, const Network* net, const MicroTime* t, int n, int mode) {
    double ready = t->classifier, done = ready + scale_reduce_seconds(net, m->last, n, mode);
    for (int l = 0; l < m->num_layers; l++) {
        ready += t->layer;
        done = fmax(done, ready) + scale_reduce_seconds(net, m->layer, n, mode);
    }
    ready += t->embeddings;
    done = fmax(done, ready) + scale_reduce_seconds(net, m->first, n, mode);
    return done - ready;
}

ScaledStep scale_predict(const ScaleModel* m, const Network* net, int n, int mode) {
    ScaledStep p;
    const long long windows = m->windows / n;
    p.rows = scale_rows(windows, m->most_rows);
    p.micro_steps = windows / p.rows;
    const MicroTime t = scale_micro(m, p.rows);
    const size_t elements = scale_elements(m);
    const bool zero = mode & SCALE_ZERO;
    const double gather = zero ? half_all_reduce_seconds(net, (double)(elements * m->param_bytes), n) : 0;
    const double numbers = 2 * half_all_reduce_seconds(net, 0, n);
    const double ranges = scale_reduce_seconds(net, m->first, n, mode) + scale_reduce_seconds(net, m->last, n, mode) +
                          m->num_layers * scale_reduce_seconds(net, m->layer, n, mode);
    p.computing = m->begin + (double)p.micro_steps * micro_seconds(m, &t);
    p.update = zero ? m->update / n : m->update;
    p.sent = ranges + gather + numbers;
    p.embeddings = scale_reduce_seconds(net, m->first, n, mode);
    p.exposed = (mode & SCALE_OVERLAP ? scale_exposed(m, net, &t, n, mode) : ranges) + gather + numbers;
    p.bytes = (n - 1.0) / n * (double)elements * (double)(sizeof(float) + (zero ? m->param_bytes : sizeof(float)));
    p.seconds = p.computing + p.update + p.exposed;
    return p;
}

// ---------------------------------------------------------------------------------------------------------------------
// options

// Reads "300GB/s:5us"; returns the end of it, NULL if it is malformed.
static const char* link_parse_one(const char* text, Link* link) {
    double gigabytes, microseconds;
    int used = 0;
    if (sscanf(text, "%lfGB/s:%lfus%n", &gigabytes, &microseconds, &used) != 2 || !used) { return NULL; }
    if (!(gigabytes > 0 && gigabytes < 1e9 && microseconds >= 0 && microseconds < 1e9)) { return NULL; }
    link->bandwidth = 1e9 * gigabytes;
    link->latency = 1e-6 * microseconds;
    return text + used;
}

bool link_parse(const char* text, Network* net, Error* err) {
    int per_machine = INT32_MAX, used = 0;
    memset(net, 0, sizeof *net);
    if (sscanf(text, "%dx%n", &per_machine, &used) != 1 || !used) { per_machine = INT32_MAX, used = 0; }
    const char* end = link_parse_one(text + used, &net->within);
    net->between = net->within;
    net->per_machine = per_machine;
    if (end && *end == ',' && used) { end = link_parse_one(end + 1, &net->between); }
    else if (used) { end = NULL; }
    if (end && !*end && per_machine > 0) { return true; }
    return fail(err, "--link '%s': give a bandwidth and a latency, as 300GB/s:5us, or those within machines and "
                "between them, as 8x300GB/s:5us,50GB/s:15us", text);
}

MicroTime micro_of_whole(int rows, double seconds, const ScaleModel* m) {
    const double layers = (double)m->num_layers * (double)m->layer, whole = 6 * (layers + (double)m->first);
    const MicroTime t = {rows, seconds * 2 * layers / whole, seconds * 6 * (double)m->first / whole,
                         seconds * 4 * (double)m->layer / whole, 0};
    return t;
}
