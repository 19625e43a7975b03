// Counts memory traffic as the hardware moves it, for each kernel:
//   global memory   sectors of 32 bytes for each request, against the fewest that could hold the bytes asked for
//   shared memory   wavefronts for each request, against the fewest for its lanes: bank conflicts are the difference
//   a launch        bytes of the sectors that it reads and writes, against each sector once
//
// A request is one load or store of a warp. hooks.h reports the accesses of single lanes. Those of a warp's lanes are
// one request if they are the same access in the code, reached by the same calls, and each is its lane's k-th there
// since the lanes last waited for each other (__syncwarp, a shuffle, mma, ...). So a lane that leaves out a turn of a
// loop, which others take, is counted one turn too early from there on.
//
// Shared memory has 32 banks; neighbouring words of 4 bytes are in neighbouring banks. In a wavefront each bank gives
// or takes one word; any number of lanes may share that word (CUDA C++ Programming Guide, "Shared Memory"). 64-bit
// accesses take two phases of 16 lanes each, 128-bit accesses four of 8 lanes, and only lanes of one phase conflict
// ("cuTENSOR: High-Performance Tensor Operations in CUDA", GTC 2019, S9593); ldmatrix takes a phase for each matrix.
//
// Not counted: atomics, caches, local memory. The widths of accesses are those of the source; nvcc may split or merge.
#pragma once
#include "places.h"
#ifndef EMU_CHECK

namespace emu {
inline void traffic_pass_end() {}
inline void traffic_launch_end() {}
} // namespace emu

#else
#include <algorithm>
#include <bitset>
#include <map>
#include <tuple>
#include <unordered_map>

namespace emu {

inline bool counts_traffic = getenv("EMU_TRAFFIC") != nullptr; // in place of looking for races

// ---------------------------------------------------------------------------------------------------------------------
// one request

constexpr uintptr_t SECTOR_BYTES = 32, WORD_BYTES = 4, BANKS = 32;
constexpr size_t WAVEFRONT_BYTES = BANKS * WORD_BYTES;

struct Request {
    unsigned lanes = 0; // a mask
    uintptr_t at[32];   // the lanes' addresses, multiples of the size that all lanes access
};

// Up to 32 different numbers.
struct Numbers {
    uintptr_t x[32];
    unsigned count = 0;

    // Returns false if it has the number already.
    bool add(uintptr_t number) {
        for (unsigned i = 0; i < count; i++) {
            if (x[i] == number) { return false; }
        }
        x[count++] = number;
        return true;
    }
};

inline Numbers different(const Request& r, uintptr_t unit) {
    Numbers numbers;
    for (unsigned rest = r.lanes; rest; rest &= rest - 1) { numbers.add(r.at[__builtin_ctz(rest)] / unit); }
    return numbers;
}

inline size_t least_sectors(const Request& r, size_t size) {
    return round_up(different(r, 1).count * size, SECTOR_BYTES) / SECTOR_BYTES;
}

// Lanes that one wavefront can serve.
inline unsigned lanes_of_phase(size_t size) { return size <= WORD_BYTES ? 32 : (unsigned)(WAVEFRONT_BYTES / size); }

inline size_t count_wavefronts(const Request& r, size_t size) {
    const unsigned phase = lanes_of_phase(size);
    size_t wavefronts = 0;
    for (unsigned first = 0; first < 32; first += phase) {
        Numbers words;
        unsigned of_bank[BANKS] = {}, most = 0;
        for (unsigned l = first; l < first + phase; l++) {
            if (!(r.lanes >> l & 1)) { continue; }
            for (uintptr_t word = r.at[l] / WORD_BYTES; word * WORD_BYTES < r.at[l] + size; word++) {
                if (words.add(word)) { most = std::max(most, ++of_bank[word % BANKS]); }
            }
        }
        wavefronts += most;
    }
    return wavefronts;
}

inline size_t least_wavefronts(const Request& r, size_t size) {
    const unsigned lanes = (unsigned)__builtin_popcount(r.lanes), phase = lanes_of_phase(size);
    return (lanes + phase - 1) / phase;
}

// ---------------------------------------------------------------------------------------------------------------------
// sums

// Sectors or wavefronts of some requests.
struct Moved {
    size_t requests = 0, moved = 0, least = 0;
    void add(const Moved& m) { requests += m.requests, moved += m.moved, least += m.least; }
    double ratio() const { return (double)moved / (double)least; }
};

// An access in the code, in whatever call.
struct CodePlace {
    unsigned pc; // relative to the program's base
    bool shared, writes;
    bool operator<(const CodePlace& p) const {
        return std::tie(pc, shared, writes) < std::tie(p.pc, p.shared, p.writes);
    }
};

// Traffic of all launches of a kernel.
struct Traffic {
    size_t launches = 0;
    std::map<CodePlace, Moved> places;
    Moved read, written; // bytes of global memory; least: each sector once in each launch

    Moved total(bool shared) const {
        Moved sum;
        for (auto& [place, m] : places) {
            if (place.shared == shared) { sum.add(m); }
        }
        return sum;
    }
};

inline std::map<std::string, Traffic> traffic; // by name of the kernel

inline Traffic& traffic_of_launch() {
    static const char* name = nullptr;
    static Traffic* found = nullptr;
    if (name != S->name) {
        name = S->name;
        found = &traffic[name];
    }
    return *found;
}

// Sectors of a page that the launch `launch` has touched: bits.
struct PageSectors {
    size_t launch = 0;
    std::bitset<PAGE / SECTOR_BYTES> read, written;
};

// Returns true if this launch needs to move the sector: it is written for the first time, or read for the first time
// and not written before.
inline bool is_needed(uintptr_t sector, bool writes) {
    static std::unordered_map<uintptr_t, PageSectors> pages;
    const uintptr_t in_page = PAGE / SECTOR_BYTES, bit = sector % in_page;
    PageSectors& page = pages[sector / in_page];
    if (page.launch != launches) { page = {launches, {}, {}}; }
    const bool known = page.written[bit] || (!writes && page.read[bit]);
    (writes ? page.written : page.read)[bit] = true;
    return !known;
}

// ---------------------------------------------------------------------------------------------------------------------
// grouping accesses of lanes to requests

// The requests of one access of the code, in one call, since the warp's lanes were last together.
struct Site {
    CodePlace place;
    size_t size;
    std::vector<Request> requests;
    size_t next[32] = {}; // of each lane
};

inline std::unordered_map<uint64_t, Site> sites;
inline std::vector<Site*> open_sites; // those with requests

EMU_UNSEEN inline uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull; // 2^64 / the golden ratio
    return hash ^ hash >> 32;
}

// The functions in which a thread is: hash[i] is of the first i calls.
struct Calls {
    unsigned depth = 0;
    uint64_t hash[64] = {};
};
inline Calls calls[MAX_THREADS];

EMU_UNSEEN inline void traffic_call(void* pc) {
    Calls& c = calls[cur->warp * 32 + cur->lane];
    if (c.depth + 1 == std::size(c.hash)) { die("%s: more than %u calls within each other", S->name, c.depth); }
    c.hash[c.depth + 1] = mix(c.hash[c.depth], (uint64_t)pc);
    c.depth++;
}
EMU_UNSEEN inline void traffic_return() { calls[cur->warp * 32 + cur->lane].depth--; }

// Notes that the current thread accesses `size` bytes, a power of two, at a multiple of `size`.
inline void traffic_piece(uintptr_t at, size_t size, const CodePlace& place) {
    const Calls& c = calls[cur->warp * 32 + cur->lane];
    const uint64_t kind = size * 4 + place.shared * 2 + place.writes;
    Site& site = sites[mix(mix(c.hash[c.depth], place.pc), kind)];
    if (site.requests.empty()) {
        site.place = place;
        site.size = size;
        open_sites.push_back(&site);
    }
    const size_t k = site.next[cur->lane]++;
    if (k == site.requests.size()) { site.requests.emplace_back(); }
    site.requests[k].lanes |= 1u << cur->lane;
    site.requests[k].at[cur->lane] = at;
}

// Notes an access of the current thread, at `pc`, to n bytes at p. As nvcc must, it is split into pieces of at most
// `widest` bytes that are aligned to their size.
inline void traffic_access(const void* p, size_t n, bool writes, void* pc, size_t widest) {
    if (!cur || (!on_device(p) && !in_shared(p, 1))) { return; }
    const CodePlace place = {pc_in_program(pc), !on_device(p), writes};
    for (uintptr_t at = (uintptr_t)p, end = at + n; at < end;) {
        size_t size = std::min(widest, (size_t)(at & -at));
        while (size > end - at) { size /= 2; }
        traffic_piece(at, size, place);
        at += size;
    }
}

inline void count_request(const Request& r, const Site& site, Traffic* t) {
    Moved& m = t->places[site.place];
    m.requests++;
    if (site.place.shared) {
        m.moved += count_wavefronts(r, site.size);
        m.least += least_wavefronts(r, site.size);
        return;
    }
    const Numbers sectors = different(r, SECTOR_BYTES);
    m.moved += sectors.count;
    m.least += least_sectors(r, site.size);
    Moved& bytes = site.place.writes ? t->written : t->read;
    for (unsigned i = 0; i < sectors.count; i++) {
        bytes.moved += SECTOR_BYTES;
        bytes.least += SECTOR_BYTES * is_needed(sectors.x[i], site.place.writes);
    }
}

// The lanes of a warp are together: their requests since the last time are complete.
inline void traffic_pass_end() {
    for (Site* site : open_sites) {
        for (const Request& r : site->requests) { count_request(r, *site, &traffic_of_launch()); }
        site->requests.clear();
        std::fill(std::begin(site->next), std::end(site->next), 0);
    }
    open_sites.clear();
}

inline void traffic_launch_end() {
    if (counts_traffic) { traffic_of_launch().launches++; }
}

// ---------------------------------------------------------------------------------------------------------------------
// the report

// "k_kernel [with T = __nv_bfloat16; int n = 4; size_t = long unsigned int]" -> "k<bf16,4>": typedefs, which g++ lists
// too, begin with a small letter and are one word.
inline std::string short_name(const std::string& name) {
    const size_t with = name.find(" [with ");
    std::string text = name.substr(0, with), values;
    if (const size_t at = text.rfind("_kernel"); at != std::string::npos) { text.erase(at); }
    for (size_t at = with; at != std::string::npos; at = name.find(';', at + 1)) {
        const size_t word = at + (at == with ? strlen(" [with ") : strlen("; ")), begin = name.find(" = ", word) + 3;
        const std::string value = name.substr(begin, name.find_first_of(";]", begin) - begin);
        if (islower(name[word]) && name.find(' ', word) == begin - 3) { continue; }
        const bool is_bf16 = value == "__nv_bfloat16", is_fp16 = value == "__half";
        values += (values.empty() ? "" : ",") + (is_bf16 ? "bf16" : is_fp16 ? "fp16" : value);
    }
    return values.empty() ? text : text + "<" + values + ">";
}

inline void print_moved(FILE* f, const Moved& m) {
    if (m.requests == 0) {
        fprintf(f, " %8d %6s %6s", 0, "-", "-");
    } else {
        fprintf(f, " %8zu %6.2f %6.2f", m.requests, (double)m.moved / (double)m.requests, m.ratio());
    }
}
inline void print_bytes(FILE* f, const Moved& m) {
    fprintf(f, " %8.1f", (double)m.moved / 1024);
    fprintf(f, m.least ? " %6.2f" : "      -", m.ratio());
}

typedef std::map<std::string, const Traffic*> TrafficLines; // by short name

// The accesses that move more than the least.
inline void print_costly_places(FILE* f, const TrafficLines& lines) {
    for (auto& [name, t] : lines) {
        for (auto& [place, m] : t->places) {
            if (m.moved == m.least) { continue; }
            fprintf(f, "%s: %s: %s %s: %zu requests, %.2f x least\n", place_of(place.pc).c_str(), name.c_str(),
                    place.shared ? "shared" : "global", place.writes ? "store" : "load", m.requests, m.ratio());
        }
    }
}

// A line for each kernel, in fields that blanks separate, an empty line, and a line for each costly access.
inline void print_traffic(FILE* f) {
    TrafficLines lines;
    size_t longest = 6;
    for (auto& [name, t] : traffic) {
        lines[short_name(name)] = &t;
        longest = std::max(longest, short_name(name).size());
    }
    const int width = (int)longest;
    fprintf(f, "%-*s %4s %22s %22s %15s %15s\n", width, "", "", "global, in sectors", "shared, in wavefronts",
            "KiB read", "KiB written");
    fprintf(f, "%-*s %4s", width, "kernel", "runs");
    for (int i = 0; i < 2; i++) { fprintf(f, " %8s %6s %6s", "requests", "each", "/least"); }
    for (int i = 0; i < 2; i++) { fprintf(f, " %8s %6s", "all", "/least"); }
    fputc('\n', f);
    for (auto& [name, t] : lines) {
        fprintf(f, "%-*s %4zu", width, name.c_str(), t->launches);
        print_moved(f, t->total(false));
        print_moved(f, t->total(true));
        print_bytes(f, t->read);
        print_bytes(f, t->written);
        fputc('\n', f);
    }
    fputc('\n', f);
    print_costly_places(f, lines);
}

// Writes the report at the end of the program, to the file that EMU_TRAFFIC names, or to standard error.
struct TrafficReport {
    ~TrafficReport() {
        if (traffic.empty()) { return; }
        const char* name = getenv("EMU_TRAFFIC");
        FILE* f = name && *name ? fopen(name, "w") : stderr;
        if (!f) { die("EMU_TRAFFIC=%s: cannot be written", name); }
        print_traffic(f);
        if (f != stderr && fclose(f) != 0) { die("EMU_TRAFFIC=%s: cannot be written", name); }
    }
};
inline TrafficReport traffic_report;

} // namespace emu
#endif
