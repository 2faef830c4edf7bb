// Runs kernel launches that a Python process describes on standard input (see host_cuda.py).
//
// Each case names its buffers, each of exactly the size given, at the least alignment promised, amid
// poisoned margins; its launches run one after the other; the counters must be zero again; the bytes
// of c and amax go to standard output. Whatever is wrong ends the process with a report on standard
// error.
#include "machine.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

extern "C" {
const char* __asan_default_options() {
    return "detect_leaks=0:detect_stack_use_after_return=0:print_legend=0";
}
const char* __ubsan_default_options() { return "print_stacktrace=1"; }
}

namespace host {
namespace {

constexpr uint32_t NULL_POINTER = 0xFFFFFFFF;  // instead of a buffer's number

struct Entry {
    Instance::Run run;
    dim3 cluster;
};

std::map<std::string, Entry>& instances() {
    static std::map<std::string, Entry> table;
    return table;
}

// Memory of exactly `size` bytes, `alignment` bytes past a multiple of 32, amid poisoned margins.
class Buffer {
public:
    Buffer(size_t size, size_t alignment) : size_(size), mapped_(2 * MARGIN + size + 64) {
        base_ = static_cast<unsigned char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (base_ == MAP_FAILED) fail("no memory for %zu bytes", size);
        data_ = base_ + MARGIN + alignment % 32;
        std::memset(data_ - GRANULE, NAN_BYTE, size + 2 * GRANULE);
        __asan_poison_memory_region(base_, data_ - base_);
        __asan_poison_memory_region(data_ + size, base_ + mapped_ - data_ - size);
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() {
        __asan_unpoison_memory_region(base_, mapped_);
        munmap(base_, mapped_);
    }

    // ASan poisons whole granules only in front of a buffer that starts inside of one.
    void check_front(const char* name) {
        __asan_unpoison_memory_region(data_ - GRANULE, GRANULE);
        for (size_t i = 1; i <= GRANULE; ++i)
            if (data_[-static_cast<int>(i)] != NAN_BYTE) fail("a write in front of %s", name);
    }

    unsigned char* data() { return data_; }
    size_t size() const { return size_; }

private:
    static constexpr size_t MARGIN = 1 << 20, GRANULE = 8;
    size_t size_, mapped_;
    unsigned char *base_, *data_;
};

template <typename T>
T read() {
    T value;
    if (std::fread(&value, sizeof value, 1, stdin) != 1) std::_Exit(0);
    return value;
}

std::string read_text() {
    std::string text(read<uint32_t>(), '\0');
    if (std::fread(text.data(), 1, text.size(), stdin) != text.size()) fail("truncated job");
    return text;
}

std::unique_ptr<Buffer> read_buffer() {
    const auto alignment = read<uint32_t>();
    const std::string bytes = read_text();
    auto buffer = std::make_unique<Buffer>(bytes.size(), alignment);
    std::memcpy(buffer->data(), bytes.data(), bytes.size());
    return buffer;
}

// A tensor map as `cuTensorMapEncodeTiled` takes it.
TensorMapValue read_map(const std::vector<std::unique_ptr<Buffer>>& buffers) {
    TensorMapValue map{};
    map.mark = TensorMapValue::MARK;
    map.base = buffers.at(read<uint32_t>())->data();
    map.base += read<int64_t>();
    map.element_bytes = read<int32_t>();
    map.to_tf32 = read<int32_t>();
    for (long long* size : {&map.columns, &map.rows, &map.batch, &map.pitch, &map.stride})
        *size = read<int64_t>();
    for (int* size : {&map.box_columns, &map.box_rows, &map.swizzle}) *size = read<int32_t>();
    const auto wrong = [](const char* what, long long value) {
        fail("a tensor map whose %s is %lld", what, value);
    };
    if (const auto past = reinterpret_cast<uintptr_t>(map.base) % 16) wrong("address mod 16", past);
    if (map.pitch % 16 || map.pitch < map.columns * map.element_bytes) wrong("pitch", map.pitch);
    if (map.stride % 16) wrong("stride", map.stride);
    for (const long long size : {map.columns, map.rows, map.batch})
        if (size < 1 || size > 1ll << 32) wrong("extent", size);
    for (const int size : {map.box_columns, map.box_rows})
        if (size < 1 || size > 256) wrong("box", size);
    const int line = map.box_columns * map.element_bytes;
    if (line % 16) wrong("line", line);
    // Narrower lines are possible, but not emulated.
    if (map.swizzle && line != map.swizzle) wrong("line other than the swizzle", line);
    if (map.swizzle != 0 && map.swizzle != 32 && map.swizzle != 64 && map.swizzle != 128)
        wrong("swizzle", map.swizzle);
    return map;
}

Argument read_argument(const std::vector<std::unique_ptr<Buffer>>& buffers);

// The members of a struct that are no structs, each with its offset.
void read_struct(Argument& argument, const std::vector<std::unique_ptr<Buffer>>& buffers) {
    argument.size = read<uint32_t>();
    if (argument.size > STRUCT_LIMIT) fail("a struct of %zu bytes", argument.size);
    std::memset(argument.bytes, NAN_BYTE, argument.size);
    for (auto count = read<uint32_t>(); count > 0; --count) {
        const auto offset = read<uint32_t>();
        const Argument member = read_argument(buffers);
        const size_t size = member.type == 'i' || member.type == 'f' ? 4 : 8;
        if (offset + size > argument.size) fail("a member at %u of %zu bytes", offset, argument.size);
        std::memcpy(argument.bytes + offset, member.bytes, size);
    }
}

Argument read_argument(const std::vector<std::unique_ptr<Buffer>>& buffers) {
    Argument argument{};
    argument.type = read<char>();
    switch (argument.type) {
        case 'p': {
            const auto index = read<uint32_t>();
            argument.pointer = index == NULL_POINTER ? nullptr : buffers.at(index)->data();
            break;
        }
        case 'i': argument.i32 = read<int32_t>(); break;
        case 'l': argument.i64 = read<int64_t>(); break;
        case 'f': argument.f32 = read<float>(); break;
        case 'd': argument.f64 = read<double>(); break;
        case 't': argument.map = read_map(buffers); break;
        case 's': read_struct(argument, buffers); break;
        default: fail("argument of type %c", argument.type);
    }
    return argument;
}

Launch read_launch(const std::vector<std::unique_ptr<Buffer>>& buffers) {
    const std::string name = read_text();
    const auto found = instances().find(name);
    if (found == instances().end()) fail("%s was not built", name.c_str());
    const auto [kernel, cluster] = found->second;
    Launch launch{kernel, cluster, read<dim3>(), read<dim3>(), read<uint32_t>(), {}};
    launch.arguments.resize(read<uint32_t>());
    for (Argument& argument : launch.arguments) argument = read_argument(buffers);
    return launch;
}

void run_case(Machine& machine) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::map<std::string, Buffer*> named;
    const auto launches = read<uint32_t>();
    for (auto left = read<uint32_t>(); left > 0; --left) {
        const std::string name = read_text();
        buffers.push_back(read_buffer());
        named[name] = buffers.back().get();
    }
    for (uint32_t i = 0; i < launches; ++i) machine.run(read_launch(buffers));
    for (const auto& [name, buffer] : named) buffer->check_front(name.c_str());
    Buffer& counts = *named.at("counters");
    const auto* counters = reinterpret_cast<const uint32_t*>(counts.data());
    for (size_t i = 0; i < counts.size() / sizeof *counters; ++i)
        if (counters[i]) fail("counter %zu is left at %u", i, counters[i]);
    for (const char* written : {"c", "amax"})
        std::fwrite(named.at(written)->data(), 1, named.at(written)->size(), stdout);
    std::fflush(stdout);
}

}  // namespace

Instance::Instance(const char* name, Run run, dim3 cluster) { instances()[name] = {run, cluster}; }

void expect(const Argument* arguments, size_t count, const char* taken, const size_t* sizes) {
    if (count != std::strlen(taken))
        fail("the plan passes %zu arguments, the kernel takes %zu", count, std::strlen(taken));
    for (size_t i = 0; i < count; ++i)
        if (arguments[i].type != taken[i])
            fail("argument %zu: the plan passes %c, the kernel takes %c", i, arguments[i].type,
                 taken[i]);
    for (size_t i = 0; i < count; ++i)
        if (taken[i] == 's' && arguments[i].size != sizes[i])
            fail("argument %zu: the plan passes a struct of %zu bytes, the kernel takes %zu", i,
                 arguments[i].size, sizes[i]);
}

}  // namespace host

int main() {
    host::Machine machine;
    for (;;) host::run_case(machine);
}
