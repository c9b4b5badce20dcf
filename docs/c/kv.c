// Four functions of HubKV, GraphKV and HEX in C, served over a pipe as docs/program.md says:
//
//   cc -O2 -o kv docs/c/kv.c -lm
//   python -m spec_tests --command ./kv
//
// It needs nothing but the C library, and a little-endian machine. All is computed in doubles,
// and rounded to the dtype of the result once. Tensors come as base64, and go as lists.
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Memory: what a call takes is freed after its answer ----

typedef struct Block {
    struct Block *next;
    max_align_t data[];
} Block;
static Block *blocks;

static void *take(size_t size) {
    Block *block = calloc(1, sizeof(Block) + size);
    if (!block) exit(fprintf(stderr, "error: out of memory\n"));
    block->next = blocks, blocks = block;
    return block->data;
}

static void free_all(void) {
    for (Block *next; blocks; blocks = next) next = blocks->next, free(blocks);
}

// ---- Refusals ----

static jmp_buf refused;
static const char *refusal_kind;
static char refusal[200];

// Refuse the call: `kind` is "type" or "value".
static void refuse(const char *kind, const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    vsnprintf(refusal, sizeof refusal, format, rest);
    va_end(rest);
    refusal_kind = kind;
    longjmp(refused, 1);
}

// ---- JSON ----

typedef struct Value {
    enum { NOTHING, FLAG, NUMBER, WORD, LIST, OBJECT } kind;
    double number;       // a flag is 0 or 1
    bool is_integer;     // a number without a decimal point
    char *text;          // of a word
    char *name;          // of a member of an object
    struct Value *first; // of the items of a list or the members of an object
    struct Value *next;
} Value;

static const char *at; // the next character of the line

static void skip_spaces(void) { at += strspn(at, " \t\r\n"); }

static bool skip_character(char wanted) {
    skip_spaces();
    return *at == wanted ? at++, true : false;
}

// A string without the backslashes of escapes: no word that matters has one.
static char *parse_text(void) {
    size_t length = 0;
    const char *start = ++at;
    for (; *at && *at != '"'; at++)
        if (*at == '\\' && at[1]) at++;
    char *text = take((size_t)(at - start) + 1);
    for (const char *c = start; c < at; c++)
        if (*c != '\\') text[length++] = *c;
    if (*at) at++;
    return text;
}

static Value *parse(void) {
    Value *value = take(sizeof(Value));
    skip_spaces();
    if (*at == '[' || *at == '{') {
        char close = *at == '[' ? ']' : '}';
        value->kind = *at++ == '[' ? LIST : OBJECT;
        for (Value **last = &value->first; *at && !skip_character(close); last = &(*last)->next) {
            char *name = value->kind == OBJECT ? parse_text() : NULL;
            if (name) skip_character(':');
            *last = parse();
            (*last)->name = name;
            skip_character(',');
            skip_spaces();
        }
    } else if (*at == '"') {
        value->kind = WORD;
        value->text = parse_text();
    } else if (*at == 't' || *at == 'f' || *at == 'n') {
        value->kind = *at == 'n' ? NOTHING : FLAG;
        value->number = *at == 't';
        at += *at == 'f' ? 5 : 4;
    } else {
        char *end;
        value->kind = NUMBER;
        value->number = strtod(at, &end);
        size_t length = (size_t)(end - at);
        value->is_integer = strcspn(at, ".eE") >= length;
        if (!length) exit(fprintf(stderr, "error: no JSON at %.40s\n", at));
        at = end;
    }
    return value;
}

static bool is_word(const Value *value, const char *word) {
    return value->kind == WORD && !strcmp(value->text, word);
}

static const Value *member(const Value *object, const char *name) {
    const Value *found = object->kind == OBJECT ? object->first : NULL;
    while (found && strcmp(found->name, name)) found = found->next;
    return found;
}

// ---- Tensors ----

typedef enum { F64, F32, F16, I64, U8, BOOL, DTYPES } Dtype;
static const char *const NAMES[] = {"float64", "float32", "float16", "int64", "uint8", "bool"};
enum { MOST_AXES = 32 };

typedef struct Tensor {
    Dtype dtype;
    int axes;
    long shape[MOST_AXES];
    long count;
    double *data;        // in row order
    struct Tensor *next; // of a result with several fields
} Tensor;

static Tensor *tensor(Dtype dtype, int axes, const long *shape) {
    Tensor *made = take(sizeof(Tensor));
    made->dtype = dtype, made->axes = axes, made->count = 1;
    for (int i = 0; i < axes; i++) made->count *= made->shape[i] = shape[i];
    made->data = take((size_t)made->count * sizeof(double));
    return made;
}

static long last_length(const Tensor *x) { return x->shape[x->axes - 1]; }

static bool is_true(const Tensor *x, long i) { return x && x->data[i] != 0; }

static double rounded(Dtype dtype, double x) {
    if (dtype == F32) return (double)(float)x;
    if (dtype != F16 || x == 0 || !isfinite(x)) return x;
    int unit = (ilogb(x) > -14 ? ilogb(x) : -14) - 10;     // of ten binary digits after the first
    double near = ldexp(nearbyint(ldexp(x, -unit)), unit); // half to even
    return fabs(near) > 65504 ? copysign(INFINITY, x) : near;
}

// The bytes that a base64 text stands for.
static unsigned char *decode(const char *text) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char *bytes = take(strlen(text) + 1), *end = bytes;
    uint32_t bits = 0;
    int count = 0;
    for (; *text && *text != '='; text++) {
        bits = bits << 6 | (uint32_t)(strchr(letters, *text) - letters);
        if ((count += 6) >= 8) *end++ = (unsigned char)(bits >> (count -= 8));
    }
    return bytes;
}

static double read_element(Dtype dtype, const unsigned char *bytes, long i) {
    double wide;
    float single;
    int64_t whole;
    switch (dtype) {
    case F64: return memcpy(&wide, bytes + 8 * i, 8), wide;
    case F32: return memcpy(&single, bytes + 4 * i, 4), single;
    case I64: return memcpy(&whole, bytes + 8 * i, 8), (double)whole;
    default: return bytes[i];
    }
}

// Print the nested lists of the elements from `*element` on, and move it past them.
static void print_lists(const Tensor *x, int axis, const double **element) {
    if (axis < x->axes) {
        putchar('[');
        for (long i = 0; i < x->shape[axis]; i++) {
            if (i) putchar(',');
            print_lists(x, axis + 1, element);
        }
        putchar(']');
        return;
    }
    double number = rounded(x->dtype, *(*element)++);
    if (x->dtype == BOOL)
        printf(number != 0 ? "true" : "false");
    else
        printf(isfinite(number) ? "%.17g" : "\"%g\"", number);
}

static void print_tensor(const Tensor *x) {
    if (x->count) {
        const double *element = x->data;
        printf("{\"%s\":", NAMES[x->dtype]);
        print_lists(x, 0, &element);
        printf("}");
    } else {
        printf("{\"shape\":[");
        for (int i = 0; i < x->axes; i++) printf(i ? ",%ld" : "%ld", x->shape[i]);
        printf("],\"of\":\"%s\"}", NAMES[x->dtype]);
    }
}

// ---- Arguments ----

static const Value *inputs; // of the call

// An argument, or NULL where its default holds.
static const Value *given(const char *name) {
    const Value *found = member(inputs, name);
    return found && found->kind != NOTHING ? found : NULL;
}

static double number(const char *name, double otherwise) {
    const Value *found = given(name);
    if (!found) return otherwise;
    if (found->kind == NUMBER) return found->number;
    if (is_word(found, "inf")) return INFINITY;
    if (is_word(found, "-inf")) return -INFINITY;
    if (is_word(found, "nan")) return NAN;
    refuse("type", "%s must be a number", name);
    return NAN;
}

// An integer from `least` to `most`; one beyond 10^18, where that is admitted, is 10^18.
static long integer(const char *name, long otherwise, double least, double most) {
    const Value *found = given(name);
    if (!found) return otherwise;
    if (found->kind != NUMBER || !found->is_integer) refuse("type", "%s must be an integer", name);
    double x = found->number;
    if (x < least || x > most)
        refuse("value", "%s must be in [%g, %g], got %g", name, least, most, x);
    return (long)fmin(x, 1e18);
}

static bool flag(const char *name, bool otherwise) {
    const Value *found = given(name);
    if (found && found->kind != FLAG) refuse("type", "%s must be true or false", name);
    return found ? found->number : otherwise;
}

// A tensor whose dtype is one of those from `first` to `last`, or NULL if it is not given.
static Tensor *read_tensor(const char *name, Dtype first, Dtype last) {
    const Value *found = given(name);
    if (!found) return NULL;
    const Value *bytes = member(found, "base64"), *shape = member(found, "shape");
    const Value *of = member(found, "of");
    if (!bytes || !shape || !of) refuse("type", "%s must be a tensor", name);
    Dtype dtype = F64;
    while (dtype < DTYPES && strcmp(NAMES[dtype], of->text)) dtype++;
    if (dtype < first || dtype > last) refuse("type", "%s must not be of %s", name, of->text);
    long lengths[MOST_AXES];
    int axes = 0;
    for (const Value *length = shape->first; length; length = length->next) {
        if (axes == MOST_AXES) refuse("unsupported", "more than %d axes", MOST_AXES);
        lengths[axes++] = (long)length->number;
    }
    Tensor *x = tensor(dtype, axes, lengths);
    unsigned char *raw = decode(bytes->text);
    for (long i = 0; i < x->count; i++) x->data[i] = read_element(dtype, raw, i);
    return x;
}

// A finite floating-point tensor of at least so many axes.
static Tensor *finite_tensor(const char *name, int least_axes) {
    Tensor *x = read_tensor(name, F64, F32);
    if (!x) refuse("type", "%s must be given", name);
    if (x->axes < least_axes) refuse("value", "%s must have at least %d axes", name, least_axes);
    for (long i = 0; i < x->count; i++)
        if (!isfinite(x->data[i])) refuse("value", "%s must be finite, got %g", name, x->data[i]);
    return x;
}

// Refuse unless `x` has the axes of `like`, apart from its axis `but`, which is left out.
static void same_axes(const char *name, const Tensor *x, const Tensor *like, int but) {
    bool same = x->axes == like->axes - (but < like->axes);
    for (int i = 0, j = 0; same && i < x->axes; i++, j++) {
        if (j == but) j++;
        same = x->shape[i] == like->shape[j];
    }
    if (!same) refuse("value", "%s must have axes of the lengths that the others have", name);
}

static Tensor *mask(const char *name, const Tensor *like, int but) {
    Tensor *x = read_tensor(name, BOOL, BOOL);
    if (x) same_axes(name, x, like, but);
    return x;
}

// ---- The functions ----

static Tensor *hub_mask(void) {
    Tensor *scores = finite_tensor("scores", 1);
    long radius = integer("radius", 2, 0, INFINITY);
    Tensor *protected = mask("protected", scores, scores->axes);
    Tensor *hubs = tensor(BOOL, scores->axes, scores->shape);
    long tokens = last_length(scores);
    for (long k = 0; k < scores->count; k++) {
        long i = k % tokens, row = k - i, start = i > radius ? i - radius : 0;
        bool is_hub = !is_true(protected, k);
        for (long j = start; is_hub && j < tokens && j - i <= radius; j++) {
            double rival = scores->data[row + j];
            bool is_stronger = rival > scores->data[k] || (rival == scores->data[k] && j < i);
            is_hub = is_true(protected, row + j) || !is_stronger;
        }
        hubs->data[k] = is_hub;
    }
    return hubs;
}

static Tensor *gate(void) {
    Tensor *scores = finite_tensor("scores", 1), *corrected = finite_tensor("corrected", 1);
    same_axes("corrected", corrected, scores, scores->axes);
    double ratio = number("ratio", NAN), power = number("power", 2);
    if (!(0 <= ratio && ratio <= 1)) refuse("value", "ratio must be in [0, 1], got %g", ratio);
    if (!(power > 0)) refuse("value", "power must be > 0, got %g", power);
    Tensor *mixed = tensor(scores->dtype, scores->axes, scores->shape);
    double strength = pow(ratio, power);
    for (long i = 0; i < mixed->count; i++)
        mixed->data[i] = (1 - strength) * scores->data[i] + strength * corrected->data[i];
    return mixed;
}

static Tensor *neighbours(void) {
    Tensor *weights = finite_tensor("weights", 2), *sources = read_tensor("sources", I64, I64);
    if (!sources) refuse("type", "sources must be given");
    same_axes("sources", sources, weights, weights->axes - 1);
    long count = integer("count", 0, 0, INFINITY);
    Tensor *protected = mask("protected", weights, weights->axes - 2);
    bool spare_sources = flag("spare_sources", false);
    Tensor *reached = tensor(BOOL, weights->axes, weights->shape);
    long tokens = last_length(weights), rows = last_length(sources);
    for (long r = 0; r < sources->count; r++)
        if (!(0 <= sources->data[r] && sources->data[r] < (double)tokens))
            refuse("value", "sources must be in [0, %ld), got %g", tokens, sources->data[r]);

    bool *candidate = take((size_t)tokens);
    for (long r = 0; r < sources->count; r++) {
        long head = r / rows;
        for (long j = 0; j < tokens; j++) candidate[j] = !is_true(protected, head * tokens + j);
        for (long s = head * rows; s < (head + 1) * rows; s++)
            if (spare_sources || s == r) candidate[(long)sources->data[s]] = false;
        for (long left = count; left > 0; left--) {
            long best = -1;
            for (long j = 0; j < tokens; j++) {
                const double *row = weights->data + r * tokens;
                if (candidate[j] && (best < 0 || row[j] > row[best])) best = j;
            }
            if (best < 0) break;
            candidate[best] = false;
            reached->data[r * tokens + best] = true;
        }
    }
    return reached;
}

static Tensor *quantise(void) {
    Tensor *x = finite_tensor("x", 1);
    long bits = integer("bits", 0, 1, 8);
    Tensor *kept = mask("kept", x, x->axes);
    Dtype stored = x->dtype;
    const Value *scales = given("scales");
    if (scales) {
        bool is_half = is_word(scales, "float16");
        if (!is_half && !is_word(scales, "float32"))
            refuse("value", "scales must be float16 or float32");
        stored = is_half ? F16 : F32;
    }
    Tensor *codes = tensor(U8, x->axes, x->shape), *steps = tensor(stored, x->axes - 1, x->shape);
    Tensor *minima = tensor(stored, x->axes - 1, x->shape);
    long members = last_length(x);
    double top = ldexp(1, (int)bits) - 1;
    for (long g = 0; g < steps->count; g++) {
        double least = INFINITY, most = -INFINITY;
        for (long i = g * members; i < (g + 1) * members; i++)
            if (!is_true(kept, i)) least = fmin(least, x->data[i]), most = fmax(most, x->data[i]);
        if (least > most) continue; // no member: step, minimum and codes are 0
        double low = rounded(stored, least), step = rounded(stored, (most - least) / top);
        if (!isfinite(low) || !isfinite(step))
            refuse("value", "x must have minima and steps in the range of %s", NAMES[stored]);
        steps->data[g] = step, minima->data[g] = low;
        for (long i = g * members; i < (g + 1) * members; i++)
            if (step > 0 && !is_true(kept, i))
                codes->data[i] = fmin(fmax(nearbyint((x->data[i] - low) / step), 0), top);
    }
    codes->next = steps, steps->next = minima;
    return codes;
}

// ---- The program ----

static const struct {
    const char *name;
    Tensor *(*call)(void);
} FUNCTIONS[] = {
    {"hub_mask", hub_mask}, {"gate", gate}, {"neighbours", neighbours}, {"quantise", quantise}};

static void print_result(const Tensor *result) {
    printf(result->next ? "\"result\":{\"tuple\":[" : "\"result\":");
    for (const Tensor *x = result; x; x = x->next) {
        print_tensor(x);
        if (x->next) putchar(',');
    }
    if (result->next) printf("]}");
}

static void answer(const char *name) {
    if (setjmp(refused)) {
        printf("\"error\":\"%s\",\"message\":\"%s\"", refusal_kind, refusal);
        return;
    }
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++)
        if (!strcmp(FUNCTIONS[i].name, name)) print_result(FUNCTIONS[i].call());
}

int main(void) {
    printf("{\"protocol\":1,\"functions\":[\"hub_mask\",\"gate\",\"neighbours\",\"quantise\"],"
           "\"dtypes\":[\"float64\",\"float32\"],\"tensors\":\"base64\"}\n");
    fflush(stdout);
    char *line = NULL;
    for (size_t size = 0; getline(&line, &size, stdin) > 0; free_all()) {
        at = line;
        const Value *call = parse();
        inputs = member(call, "inputs");
        printf("{\"id\":%.0f,", member(call, "id")->number);
        answer(member(call, "function")->text);
        printf("}\n");
        fflush(stdout);
    }
    free(line);
}
