#include "requests.h"
#include <signal.h>
#include <stdatomic.h>

// A terminal sends Ctrl-C to all processes of a command, and a launcher (supervise.sh, timeout) passes it on: signals
// that come together are one request.
#define SAME_SIGNAL_SECONDS 1.0

static char stop_text[128];              // is printed when a signal stops
static volatile sig_atomic_t stop_signal; // that came first; 0: none
static volatile sig_atomic_t interrupted;
static atomic_bool save_requested;
static double opened, stop_moment; // of seconds_now(); 0: none
static double taken[NSIG];         // when each signal that stops came first, by seconds_now(); 0: it has not come

static void take_stop(int signal_number) {
    static const char erase[] = "\r\033[J"; // the bar
    const double now = seconds_now();
    if (taken[signal_number] > 0) {
        if (now < taken[signal_number] + SAME_SIGNAL_SECONDS) { return; }
        signal(signal_number, SIG_DFL);
        raise(signal_number);
        return;
    }
    taken[signal_number] = now;
    if (!stop_signal) { stop_signal = signal_number; }
    if (process_rank == 0 && isatty(STDERR_FILENO) && write(STDERR_FILENO, erase, sizeof erase - 1) < 0) {}
    if (process_rank == 0 && write(STDERR_FILENO, stop_text, strlen(stop_text)) < 0) { /* standard error is closed */ }
}

static void take_save(int signal_number) {
    (void)signal_number;
    atomic_store(&save_requested, true);
}

// Takes a signal; a system call that it interrupts goes on.
static void take_signal(int signal_number, void (*handler)(int)) {
    struct sigaction old, action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(signal_number, NULL, &old);
    if (signal_number == SIGHUP && old.sa_handler == SIG_IGN) { return; }
    sigaction(signal_number, &action, NULL);
}

void requests_open(void) {
    opened = seconds_now();
    take_signal(SIGPIPE, SIG_IGN);
    take_signal(SIGUSR1, take_save);
}

void requests_take_stops(double max_hours, const char* words) {
    snprintf(stop_text, sizeof stop_text, "\n%s; the same signal again ends at once\n", words);
    stop_moment = max_hours > 0 ? opened + 3600 * max_hours : 0;
    take_signal(SIGINT, take_stop);
    take_signal(SIGTERM, take_stop);
    take_signal(SIGHUP, take_stop);
    take_signal(SIGUSR2, take_stop);
}

const char* request_to_stop(void) {
    switch (stop_signal) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    case SIGUSR2: return "SIGUSR2";
    default: return stop_moment > 0 && seconds_now() >= stop_moment ? "--max_time" : NULL;
    }
}

bool request_to_save(void) { return atomic_exchange(&save_requested, false); }

static void take_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

void requests_take_interrupts(void) {
    interrupted = 0;
    take_signal(SIGINT, take_interrupt);
}

void requests_end_interrupts(void) { take_signal(SIGINT, SIG_DFL); }

bool request_to_interrupt(void) { return interrupted; }
