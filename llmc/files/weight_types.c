#include "weight_types.h"
#include "../base/rounding.h"

enum { BLOCK = 32 };

static void encode_f32(void* out, const float* in, size_t n) { memcpy(out, in, n * sizeof *in); }
static void decode_f32(float* out, const void* in, size_t n) { memcpy(out, in, n * sizeof *out); }

static void put_u16(char* to, uint16_t x) { memcpy(to, &x, sizeof x); }

static uint16_t get_u16(const char* from) {
    uint16_t x;
    memcpy(&x, from, sizeof x);
    return x;
}

static void encode_f16(void* out, const float* in, size_t n) {
    for (size_t i = 0; i < n; i++) { put_u16((char*)out + 2 * i, fp16_nearest(in[i])); }
}

static void decode_f16(float* out, const void* in, size_t n) {
    for (size_t i = 0; i < n; i++) { out[i] = fp16_value(get_u16((const char*)in + 2 * i)); }
}

static void encode_bf16(void* out, const float* in, size_t n) {
    for (size_t i = 0; i < n; i++) { put_u16((char*)out + 2 * i, bf16_nearest(in[i])); }
}

static void decode_bf16(float* out, const void* in, size_t n) {
    for (size_t i = 0; i < n; i++) { out[i] = bf16_value(get_u16((const char*)in + 2 * i)); }
}

// Returns the largest size of a block's elements.
static float largest(const float* x) {
    float most = 0;
    for (int i = 0; i < BLOCK; i++) { most = fmaxf(most, fabsf(x[i])); }
    return most;
}

// x y, rounded to a float. The product of two floats is exact as a double, so no compiler can fuse it with an addition.
static float rounded_product(float x, float y) { return (float)((double)x * (double)y); }

static void encode_q8_0(void* out, const float* in, size_t n) {
    char* to = out;
    for (; n > 0; n -= BLOCK, in += BLOCK, to += 2 + BLOCK) {
        const float d = largest(in) / 127, inverse = isfinite(1 / d) ? 1 / d : 0; // of a denormal it is not finite
        put_u16(to, fp16_nearest(d));
        for (int i = 0; i < BLOCK; i++) { to[2 + i] = (char)(int)roundf(rounded_product(in[i], inverse)); }
    }
}

static void decode_q8_0(float* out, const void* in, size_t n) {
    const char* from = in;
    for (; n > 0; n -= BLOCK, out += BLOCK, from += 2 + BLOCK) {
        const float d = fp16_value(get_u16(from));
        for (int i = 0; i < BLOCK; i++) { out[i] = d * (float)(signed char)from[2 + i]; }
    }
}

const WeightType WEIGHT_TYPES[NUM_WEIGHT_TYPES] = {
    {"fp32", "F32", "float32", 0, 0, 1, 4, FLT_MAX, encode_f32, decode_f32},
    {"fp16", "F16", "float16", 1, 1, 1, 2, 65504, encode_f16, decode_f16},
    {"bf16", "BF16", "bfloat16", 30, 32, 1, 2, 0x1.fep127f, encode_bf16, decode_bf16},
    {"q8_0", NULL, NULL, 8, 7, BLOCK, 2 + BLOCK, 127 * 65504.0f, encode_q8_0, decode_q8_0},
};

const WeightType* weight_type_find(const char* name) {
    for (int i = 0; i < NUM_WEIGHT_TYPES; i++) {
        if (!strcmp(WEIGHT_TYPES[i].name, name)) { return &WEIGHT_TYPES[i]; }
    }
    return NULL;
}

const WeightType* weight_type_of_safetensors(const char* name) {
    for (int i = 0; i < NUM_WEIGHT_TYPES; i++) {
        if (WEIGHT_TYPES[i].safetensors && !strcmp(WEIGHT_TYPES[i].safetensors, name)) { return &WEIGHT_TYPES[i]; }
    }
    return NULL;
}

const WeightType* weight_type_of_ggml(uint32_t number) {
    for (int i = 0; i < NUM_WEIGHT_TYPES; i++) {
        if (WEIGHT_TYPES[i].ggml == number) { return &WEIGHT_TYPES[i]; }
    }
    return NULL;
}

// Returns "(24,8)", or "(8)"; the caller frees it.
static char* shape_text(const size_t* shape, int dims) {
    char* text = format("(");
    for (int d = 0; d < dims; d++) { append_format(&text, "%s%zu", d > 0 ? "," : "", shape[d]); }
    append_format(&text, ")");
    return text;
}

bool fail_shape(Error* err, const char* path, const char* name, const size_t* is, int dims, const size_t* wanted,
                int wanted_dims) {
    char *found = shape_text(is, dims), *models = shape_text(wanted, wanted_dims);
    fail(err, "%s: tensor %s is %s, the model's is %s", path, name, found, models);
    free(found);
    free(models);
    return false;
}
