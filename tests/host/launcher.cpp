// Runs kernel launches that a Python process describes on standard input (see host_cuda.py).
//
// Each case has four buffers (a, b, c, workspace) of exactly the sizes given, at the least
// alignment promised, amid poisoned margins; its launches run one after the other; the bytes of c
// go to standard output. Whatever is wrong ends the process with a report on standard error.
#include "cuda_host.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

// The most dynamic shared memory that any GPU gives a block, and room to run over it.
constexpr size_t SHARED_LIMIT = 227 << 10, SHARED_MARGIN = 1 << 20;
extern "C" {
alignas(16) unsigned char host_shared[SHARED_LIMIT + SHARED_MARGIN];

const char* __asan_default_options() {
    return "detect_leaks=0:detect_stack_use_after_return=0:print_legend=0";
}
const char* __ubsan_default_options() { return "print_stacktrace=1"; }
}

namespace host {
namespace {

constexpr unsigned char NAN_BYTE = 0xFF;  // floats of these bytes are NaN

[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...) {
    std::fprintf(stderr, "host: ");
    va_list values;
    va_start(values, format);
    std::vfprintf(stderr, format, values);
    va_end(values);
    std::fprintf(stderr, " [block %u %u %u, thread %u %u %u]\n", blockIdx.x, blockIdx.y, blockIdx.z,
                 threadIdx.x, threadIdx.y, threadIdx.z);
    __sanitizer_print_stack_trace();
    std::_Exit(1);
}

std::map<std::string, Instance::Run>& instances() {
    static std::map<std::string, Instance::Run> table;
    return table;
}

struct Launch {
    Instance::Run run;
    dim3 grid, block;
    uint32_t shared;
    std::vector<Argument> arguments;
};

struct Copy {
    void* to;
    int bytes;
    unsigned char value[16];
};

// Where a fiber stopped. Unlike swapcontext this makes no system call, and ASan keeps what it knows
// about the fiber's stack.
struct Place {
    void* registers[5];
};

#define UNSANITIZED __attribute__((noinline, no_sanitize("address", "undefined")))

// GCC wants __builtin_longjmp in another function than __builtin_setjmp.
UNSANITIZED void go_on(Place& place) { __builtin_longjmp(place.registers, 1); }

UNSANITIZED void jump(Place& from, Place& to) {
    if (__builtin_setjmp(from.registers) == 0) go_on(to);
}

UNSANITIZED void jump(Place& from, ucontext_t& to) {
    if (__builtin_setjmp(from.registers) == 0) setcontext(&to);
}

// A CUDA thread: a fiber that runs one kernel invocation after another.
class Thread {
public:
    explicit Thread(const Launch* const& launch) : launch_(launch) {
        stack_ = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack_ == MAP_FAILED) fail("no memory for the stack of a thread");
        mprotect(stack_, 4096, PROT_NONE);
    }
    Thread(const Thread&) = delete;

    // Begins the kernel anew.
    void start(dim3 index) {
        index_ = index;
        exited = false;
        open_.clear();
        groups_.clear();
    }

    // Runs up to the next barrier or the end of the kernel.
    void resume() {
        current = this;
        threadIdx = index_;
        void* fake_stack;
        __sanitizer_start_switch_fiber(&fake_stack, stack_, STACK);
        if (started_) {
            jump(scheduler_, place_);
        } else {
            started_ = true;
            ucontext_t context;
            getcontext(&context);
            context.uc_stack.ss_sp = stack_;
            context.uc_stack.ss_size = STACK;
            makecontext(&context, &Thread::enter, 0);
            jump(scheduler_, context);
        }
        __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
    }

    void yield() {
        void* fake_stack;
        __sanitizer_start_switch_fiber(&fake_stack, scheduler_stack_, scheduler_stack_size_);
        jump(place_, scheduler_);
        __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack_, &scheduler_stack_size_);
    }

    void queue(const Copy& copy) { open_.push_back(copy); }
    void commit() { groups_.push_back(std::exchange(open_, {})); }
    void wait(size_t allowed_pending) {
        const size_t due = groups_.size() - std::min(groups_.size(), allowed_pending);
        for (size_t group = 0; group < due; ++group)
            for (const Copy& copy : groups_[group]) std::memcpy(copy.to, copy.value, copy.bytes);
        groups_.erase(groups_.begin(), groups_.begin() + due);
    }

    static inline Thread* current;
    bool exited = true;
    const char* file = nullptr;  // the barrier at which the thread waits
    int line = 0;

private:
    static constexpr size_t STACK = 256 << 10;

    static void enter() {
        __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_size_);
        Thread* const self = current;
        for (;;) {
            self->launch_->run(self->launch_->arguments.data(), self->launch_->arguments.size());
            self->exited = true;
            self->yield();
        }
    }

    static inline Place scheduler_;
    static inline const void* scheduler_stack_;
    static inline size_t scheduler_stack_size_;

    const Launch* const& launch_;
    void* stack_;
    bool started_ = false;
    Place place_;
    dim3 index_;
    std::vector<Copy> open_;
    std::vector<std::vector<Copy>> groups_;
};

class Machine {
public:
    void run(const Launch& launch) {
        check(launch);
        launch_ = &launch;
        gridDim = launch.grid;
        blockDim = launch.block;
        const size_t count = launch.block.x * launch.block.y * launch.block.z;
        while (threads_.size() < count) threads_.push_back(std::make_unique<Thread>(launch_));
        order_.resize(count);
        for (size_t i = 0; i < count; ++i) order_[i] = threads_[i].get();
        __asan_poison_memory_region(host_shared + launch.shared,
                                    sizeof host_shared - launch.shared);
        for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
            for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
                for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_block();
        __asan_unpoison_memory_region(host_shared, sizeof host_shared);
    }

private:
    static void check(const Launch& launch) {
        const dim3 &g = launch.grid, &b = launch.block;
        if (!g.x || !g.y || !g.z || g.x > 0x7FFFFFFF || g.y > 65535 || g.z > 65535)
            fail("impossible grid %u %u %u", g.x, g.y, g.z);
        if (!b.x || !b.y || !b.z || 1ull * b.x * b.y * b.z > 1024 || b.z > 64)
            fail("impossible block %u %u %u", b.x, b.y, b.z);
        if (launch.shared > SHARED_LIMIT) fail("%u bytes of shared memory", launch.shared);
    }

    void run_block() {
        std::memset(host_shared, NAN_BYTE, launch_->shared);
        for (size_t i = 0; i < order_.size(); ++i) {
            const unsigned x = i % blockDim.x, y = i / blockDim.x % blockDim.y;
            threads_[i]->start({x, y, static_cast<unsigned>(i) / (blockDim.x * blockDim.y)});
        }
        do {
            // A fresh order each time, so that a missing barrier meets readers before writers.
            std::shuffle(order_.begin(), order_.end(), random_);
            for (Thread* thread : order_) thread->resume();
        } while (all_wait());
    }

    // True if all threads wait at one barrier, false if all have exited.
    bool all_wait() const {
        const Thread* first = order_[0];
        for (const Thread* thread : order_) {
            if (thread->exited != first->exited)
                fail("divergent barrier: some threads have exited, others wait at %s:%d",
                     (thread->exited ? first : thread)->file,
                     (thread->exited ? first : thread)->line);
            if (!thread->exited && (thread->line != first->line || thread->file != first->file))
                fail("divergent barrier: some threads wait at %s:%d, others at %s:%d", first->file,
                     first->line, thread->file, thread->line);
        }
        return !first->exited;
    }

    const Launch* launch_ = nullptr;
    std::vector<std::unique_ptr<Thread>> threads_;
    std::vector<Thread*> order_;
    std::mt19937 random_;
};

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

Argument read_argument(const std::vector<std::unique_ptr<Buffer>>& buffers) {
    Argument argument{};
    argument.type = read<char>();
    switch (argument.type) {
        case 'p': argument.pointer = buffers.at(read<uint32_t>())->data(); break;
        case 'i': argument.i32 = read<int32_t>(); break;
        case 'l': argument.i64 = read<int64_t>(); break;
        case 'f': argument.f32 = read<float>(); break;
        default: fail("argument of type %c", argument.type);
    }
    return argument;
}

Launch read_launch(const std::vector<std::unique_ptr<Buffer>>& buffers) {
    const std::string name = read_text();
    const auto found = instances().find(name);
    if (found == instances().end()) fail("%s was not built", name.c_str());
    Launch launch{found->second, read<dim3>(), read<dim3>(), read<uint32_t>(), {}};
    launch.arguments.resize(read<uint32_t>());
    for (Argument& argument : launch.arguments) argument = read_argument(buffers);
    return launch;
}

void run_case(Machine& machine) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    const auto launches = read<uint32_t>();
    for (int i = 0; i < 4; ++i) buffers.push_back(read_buffer());
    for (uint32_t i = 0; i < launches; ++i) machine.run(read_launch(buffers));
    const char* const names[] = {"a", "b", "c", "workspace"};
    for (int i = 0; i < 4; ++i) buffers[i]->check_front(names[i]);
    std::fwrite(buffers[2]->data(), 1, buffers[2]->size(), stdout);
    std::fflush(stdout);
}

}  // namespace

Instance::Instance(const char* name, Run run) { instances()[name] = run; }

void expect(const Argument* arguments, size_t count, const char* taken) {
    if (count != std::strlen(taken))
        fail("the plan passes %zu arguments, the kernel takes %zu", count, std::strlen(taken));
    for (size_t i = 0; i < count; ++i)
        if (arguments[i].type != taken[i])
            fail("argument %zu: the plan passes %c, the kernel takes %c", i, arguments[i].type,
                 taken[i]);
}

void barrier(const char* file, int line) {
    Thread* self = Thread::current;
    self->file = file;
    self->line = line;
    self->yield();
}

void copy_async(void* shared, const void* global, int bytes, bool valid) {
    if (bytes != 4 && bytes != 8 && bytes != 16) fail("asynchronous copy of %d bytes", bytes);
    if (reinterpret_cast<uintptr_t>(shared) % bytes || reinterpret_cast<uintptr_t>(global) % bytes)
        fail("misaligned asynchronous copy of %d bytes from %p to %p", bytes, global, shared);
    Copy copy{shared, bytes, {}};
    if (valid) std::memcpy(copy.value, global, bytes);
    std::memset(shared, NAN_BYTE, bytes);
    Thread::current->queue(copy);
}

void copy_commit() { Thread::current->commit(); }

void copy_wait(int allowed_pending) { Thread::current->wait(allowed_pending); }

}  // namespace host

int main() {
    host::Machine machine;
    for (;;) host::run_case(machine);
}
