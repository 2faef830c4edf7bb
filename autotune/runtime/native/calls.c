/* Recognises earlier calls by their arrays and launches them again.
 *
 * This is all that a warm matmul does: read each array through the DLPack C exchange API of its
 * library (dlpack.h 1.2 and later), look all of them up in a hash table, and launch the entry on the
 * library's current stream. Arrays that differ in address, shape, strides, type or device make
 * another call. The interpreter's lock guards the table. It is released only for the launch itself,
 * because the driver may wait for room in its queue.
 *
 * No headers of Python or CUDA are needed: the types are declared here, and the functions come as
 * addresses.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 12, AXES = 3, KINDS = 8, HOMES = 16, SLOTS = 8192, KEPT = 4096 };

/* Returned by autotune_keep in place of the number of an entry. */
enum { UNKNOWN = -1, UNREADABLE = -2 };

/* Functions of Python's stable ABI; its objects are plain pointers here. */
typedef struct {
    void *(*as_pointer)(void *integer);
    unsigned long long (*as_unsigned)(void *integer);
    void *(*from_long)(long);
    void *(*type_of)(void *object);
    void (*hold)(void *object);
    void (*drop)(void *object);
    void (*clear_error)(void);
    void *(*call)(void *function, ...);
    void *(*release_interpreter)(void);
    void (*take_interpreter)(void *);
    void *launched, *unknown; /* True, the answer of `negated` too, and None */
} Python;

static Python python;

void autotune_python(const Python *functions)
{
    python = *functions;
}

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

/* CUlaunchConfig of cuda.h. */
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    void *attributes;
    unsigned attribute_count;
} Configuration;

typedef struct {
    int (*read)(void *object, DLTensor *out);
    int (*work_stream)(int32_t device_type, int32_t device_id, void **out);
    int (*context_id)(void *context, unsigned long long *id);
    int (*launch)(const Configuration *, void *kernel, void **parameters, void **extra);
    void *negated; /* tells Python whether an array's memory has the other sign; NULL: none has */
} Functions;

typedef struct {
    uint64_t address, type, device;
    int64_t shape[AXES], strides[AXES];
} Array;

/* The tag stands for all that tells one call from another besides its arrays, also for their number
 * and what each is. It comes first, as a call with few arrays uses only a part of the key. */
typedef struct {
    uint64_t tag;
    Array arrays[ARRAYS];
} Key;

/* A call without blocks is one of cublasLtMatmul: `kernel` is the function, `parameters` has the words
 * that are its arguments but the stream, which comes last. */
typedef struct {
    Key key;
    int32_t ordinal;
    Configuration configuration;
    void *kernel; /* NULL: Python enqueues the call */
    void **parameters;
} Entry;

typedef int (*Matmul)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                      void *, void *, void *, void *, size_t, void *);

typedef struct {
    Functions functions;
    void *kinds[KINDS]; /* types whose arrays may be read */
    int kind_count;
    unsigned long long homes[HOMES];
    int32_t ordinals[HOMES];
    int home_count;
    int in_flight; /* launches that have released the interpreter's lock */
    int count;
    uint16_t slots[SLOTS]; /* numbers of entries, from 1; 0 is empty */
    Entry entries[KEPT];
} Table;

Table *autotune_table(const Functions *functions)
{
    Table *table = calloc(1, sizeof *table);
    if (table)
        table->functions = *functions;
    return table;
}

/* Frees the table unless one of its launches is in flight; returns whether it did. */
int autotune_free(Table *table)
{
    if (table->in_flight)
        return 0;
    free(table);
    return 1;
}

/* Reads arrays of a type from now on. The type has to outlive the table. */
void autotune_kind(Table *table, void *kind)
{
    if (table->kind_count < KINDS)
        table->kinds[table->kind_count++] = kind;
}

/* Notes that a context is on a device. */
void autotune_home(Table *table, unsigned long long context, int32_t ordinal)
{
    for (int i = 0; i < table->home_count; i++)
        if (table->homes[i] == context)
            return;
    if (table->home_count == HOMES)
        return;
    table->homes[table->home_count] = context;
    table->ordinals[table->home_count++] = ordinal;
}

static int is_current(const Table *table, int32_t ordinal)
{
    unsigned long long context;
    if (table->functions.context_id(NULL, &context))
        return 0;
    for (int i = 0; i < table->home_count; i++)
        if (table->homes[i] == context)
            return table->ordinals[i] == ordinal;
    return 0;
}

static int is_known(const Table *table, void *object)
{
    void *kind = python.type_of(object);
    python.drop(kind);
    for (int i = 0; i < table->kind_count; i++)
        if (table->kinds[i] == kind)
            return 1;
    return 0;
}

/* PyTorch negates lazily, which no exchange API tells. */
static int is_negated(const Table *table, void *object)
{
    if (!table->functions.negated)
        return 0;
    void *answer = python.call(table->functions.negated, object, NULL);
    if (!answer) {
        python.clear_error();
        return 1;
    }
    python.drop(answer);
    return answer == python.launched;
}

static int read_array(const Table *table, void *object, Array *array, DLTensor *tensor)
{
    if (!is_known(table, object) || is_negated(table, object))
        return UNREADABLE;
    if (table->functions.read(object, tensor)) {
        python.clear_error(); /* reading it in Python reports what is wrong */
        return UNREADABLE;
    }
    if (tensor->ndim < 0 || tensor->ndim > AXES || (tensor->ndim && !tensor->strides))
        return UNKNOWN;
    array->address = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
    array->type = (uint64_t)tensor->ndim << 32 | (uint64_t)tensor->code << 24
                  | (uint64_t)tensor->bits << 16 | tensor->lanes;
    array->device = (uint64_t)tensor->device_type << 32 | (uint32_t)tensor->device_id;
    for (int i = 0; i < tensor->ndim; i++) {
        array->shape[i] = tensor->shape[i];
        array->strides[i] = tensor->strides[i];
    }
    return 0;
}

/* The part of a key that a call with so many arrays uses. */
static size_t key_bytes(int count)
{
    return sizeof(uint64_t) + (size_t)count * sizeof(Array);
}

/* Reads all arrays of a call into a key, and the first, A, into `first` too. */
static int read_key(const Table *table, void *const *objects, int count, uint64_t tag, Key *key,
                    DLTensor *first)
{
    DLTensor other;
    int failed;
    memset(key, 0, key_bytes(count));
    key->tag = tag;
    for (int i = count - 1; i >= 0; i--)
        if ((failed = read_array(table, objects[i], &key->arrays[i], i ? &other : first)))
            return failed;
    return 0;
}

/* The slot of a key, or the empty slot where it belongs. A table is never more than half full. */
static unsigned slot_of(const Table *table, const Key *key, int count)
{
    uint64_t words[sizeof *key / 8], hash = 0;
    size_t bytes = key_bytes(count);
    memcpy(words, key, bytes);
    for (unsigned i = 0; i < bytes / 8; i++) {
        hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    unsigned slot = hash % SLOTS;
    while (table->slots[slot]
           && memcmp(&table->entries[table->slots[slot] - 1].key, key, bytes))
        slot = (slot + 1) % SLOTS;
    return slot;
}

/* Keeps a call: a launch whose parameters have to outlive the table, or, with a NULL kernel, a call
 * that Python enqueues. Returns the number of its entry, UNKNOWN or UNREADABLE. */
int autotune_keep(Table *table, void *const *objects, int32_t count, uint64_t tag, int32_t ordinal,
                  const Configuration *configuration, void *kernel, void **parameters)
{
    DLTensor first;
    Key key;
    if (count < 1 || count > ARRAYS)
        return UNREADABLE;
    int failed = read_key(table, objects, count, tag, &key, &first);
    if (failed)
        return failed;
    unsigned slot = slot_of(table, &key, count);
    if (!table->slots[slot]) {
        if (table->count == KEPT)
            return UNKNOWN;
        table->slots[slot] = (uint16_t)++table->count;
    }
    int number = table->slots[slot] - 1;
    Entry *entry = &table->entries[number];
    memcpy(&entry->key, &key, key_bytes(count));
    entry->ordinal = ordinal;
    entry->configuration = *configuration;
    entry->kernel = kernel;
    entry->parameters = parameters;
    return number;
}

static int launch(const Table *table, const Entry *entry, const Configuration *configuration)
{
    void *const *p = entry->parameters;
    Matmul matmul;
    if (configuration->grid[0])
        return table->functions.launch(configuration, entry->kernel, entry->parameters, NULL);
    memcpy(&matmul, &entry->kernel, sizeof matmul);
    return matmul(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13],
                  (size_t)(uintptr_t)p[14], configuration->stream);
}

static void *answer(void *object)
{
    python.hold(object);
    return object;
}

/* A METH_FASTCALL function for Python. Its arguments are the arrays of a call, A first, and its tag;
 * `self` is the address of the table. Returns True if the call was launched, None if it is unknown,
 * the number of an entry that Python has to enqueue, as it reports what cuBLASLt refuses, or the
 * negated status with which the driver refused a launch. */
void *autotune_call(void *self, void *const *objects, intptr_t words)
{
    Table *table = python.as_pointer(self);
    int count = (int)words - 1;
    DLTensor first;
    Key key;
    if (count < 1 || count > ARRAYS
        || read_key(table, objects, count, python.as_unsigned(objects[count]), &key, &first))
        return answer(python.unknown);
    unsigned slot = slot_of(table, &key, count);
    if (!table->slots[slot])
        return answer(python.unknown);
    int number = table->slots[slot] - 1;
    const Entry *entry = &table->entries[number];
    Configuration configuration = entry->configuration;
    if (!entry->kernel || !is_current(table, entry->ordinal)
        || table->functions.work_stream(first.device_type, first.device_id, &configuration.stream))
        return python.from_long(number);
    table->in_flight++;
    void *state = python.release_interpreter();
    int status = launch(table, entry, &configuration);
    python.take_interpreter(state);
    table->in_flight--;
    if (status)
        return python.from_long(configuration.grid[0] ? -(long)status : number);
    return answer(python.launched);
}
