// Runs kernel launches that a Python process describes on standard input (see host_cuda.py).
//
// Each case has a buffer for each of NAMES, of exactly the size given, at the least alignment
// promised, amid poisoned margins; its launches run one after the other; the counters must be zero
// again; the bytes of c go to standard output. Whatever is wrong ends the process with a report on
// standard error.
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
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
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
constexpr size_t WARP_SIZE = 32;

// The buffers of a case, in the order in which they come.
constexpr const char* NAMES[] = {"a", "b", "c", "bias", "workspace", "counters"};
constexpr size_t BUFFERS = std::size(NAMES), C = 2, COUNTERS = BUFFERS - 1;
constexpr uint32_t NULL_POINTER = 0xFFFFFFFF;  // instead of a buffer's number

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
    // Waiting for its warp or for its block, ready to run, or done.
    enum State { WARP, BLOCK, READY, EXITED };

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
        state = READY;
        count_[WARP] = count_[BLOCK] = 0;
        open_.clear();
        groups_.clear();
    }

    // Runs up to where the thread waits next, or to the end of the kernel.
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

    // Brings a value and stops until the scheduler finds that all have come who are waited for.
    // The value brought before stays readable: who still wants it has not come here yet.
    void wait(State whom, unsigned long long value, const char* at_file, int at_line) {
        brought_[whom][++count_[whom] % 2] = value;
        state = whom;
        file = at_file;
        line = at_line;
        yield();
    }

    // What `other` brought to where this thread last waited.
    unsigned long long from(const Thread& other, State whom) const {
        return other.brought_[whom][count_[whom] % 2];
    }

    void yield() {
        void* fake_stack;
        __sanitizer_start_switch_fiber(&fake_stack, scheduler_stack_, scheduler_stack_size_);
        jump(place_, scheduler_);
        __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack_, &scheduler_stack_size_);
    }

    void queue(const Copy& copy) { open_.push_back(copy); }
    void commit() { groups_.push_back(std::exchange(open_, {})); }
    void wait_copies(size_t allowed_pending) {
        const size_t due = groups_.size() - std::min(groups_.size(), allowed_pending);
        for (size_t group = 0; group < due; ++group)
            for (const Copy& copy : groups_[group]) std::memcpy(copy.to, copy.value, copy.bytes);
        groups_.erase(groups_.begin(), groups_.begin() + due);
    }

    static inline Thread* current;
    State state = EXITED;
    const char* file = nullptr;  // where the thread waits
    int line = 0;

private:
    static constexpr size_t STACK = 256 << 10;

    static void enter() {
        __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_size_);
        Thread* const self = current;
        for (;;) {
            self->launch_->run(self->launch_->arguments.data(), self->launch_->arguments.size());
            self->state = EXITED;
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
    unsigned count_[2];
    unsigned long long brought_[2][2];
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
        block.resize(count);
        for (size_t i = 0; i < count; ++i) block[i] = threads_[i].get();
        order_ = block;
        __asan_poison_memory_region(host_shared + launch.shared,
                                    sizeof host_shared - launch.shared);
        // In a fresh order each time: nothing says which block of a tile is the last.
        std::vector<unsigned> blocks(gridDim.x * gridDim.y * gridDim.z);
        std::iota(blocks.begin(), blocks.end(), 0);
        std::shuffle(blocks.begin(), blocks.end(), random_);
        for (const unsigned at : blocks) {
            blockIdx = {at % gridDim.x, at / gridDim.x % gridDim.y, at / (gridDim.x * gridDim.y)};
            run_block();
        }
        __asan_unpoison_memory_region(host_shared, sizeof host_shared);
    }

    // The threads of the block that runs, in CUDA's order.
    static inline std::vector<Thread*> block;

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
        for (size_t i = 0; i < block.size(); ++i) {
            const unsigned x = i % blockDim.x, y = i / blockDim.x % blockDim.y;
            block[i]->start({x, y, static_cast<unsigned>(i) / (blockDim.x * blockDim.y)});
        }
        do {
            // A fresh order each time, so that a missing barrier meets readers before writers.
            std::shuffle(order_.begin(), order_.end(), random_);
            for (Thread* thread : order_)
                if (thread->state == Thread::READY) thread->resume();
        } while (let_warps_go_on() || let_block_go_on());
    }

    // Whether any warp waited for its own lanes only; they have all met then.
    static bool let_warps_go_on() {
        bool any = false;
        for (size_t first = 0; first < block.size(); first += WARP_SIZE) {
            const auto begin = block.begin() + first;
            const auto end = begin + std::min<size_t>(WARP_SIZE, block.end() - begin);
            const auto waits = [](const Thread* lane) { return lane->state == Thread::WARP; };
            if (std::none_of(begin, end, waits)) continue;
            any = true;
            let_go_on(begin, end, "warp");
        }
        return any;
    }

    // Whether all threads waited for the block, which have met then; false if all have exited.
    static bool let_block_go_on() {
        const auto exited = [](const Thread* thread) { return thread->state == Thread::EXITED; };
        if (std::all_of(block.begin(), block.end(), exited)) return false;
        let_go_on(block.begin(), block.end(), "barrier");
        return true;
    }

    using Iterator = std::vector<Thread*>::const_iterator;
    static void let_go_on(Iterator begin, Iterator end, const char* what) {
        const auto exited = [](const Thread* thread) { return thread->state == Thread::EXITED; };
        const Thread* first = *std::find_if_not(begin, end, exited);
        for (Iterator at = begin; at != end; ++at) {
            Thread* thread = *at;
            if (thread->state == Thread::EXITED)
                fail("divergent %s: some threads have exited, others wait at %s:%d", what,
                     first->file, first->line);
            if (thread->line != first->line || thread->file != first->file)
                fail("divergent %s: some threads wait at %s:%d, others at %s:%d", what, first->file,
                     first->line, thread->file, thread->line);
            thread->state = Thread::READY;
        }
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
        case 'p': {
            const auto index = read<uint32_t>();
            argument.pointer = index == NULL_POINTER ? nullptr : buffers.at(index)->data();
            break;
        }
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
    for (size_t i = 0; i < BUFFERS; ++i) buffers.push_back(read_buffer());
    for (uint32_t i = 0; i < launches; ++i) machine.run(read_launch(buffers));
    for (size_t i = 0; i < BUFFERS; ++i) buffers[i]->check_front(NAMES[i]);
    const auto* counters = reinterpret_cast<const uint32_t*>(buffers[COUNTERS]->data());
    for (size_t i = 0; i < buffers[COUNTERS]->size() / sizeof *counters; ++i)
        if (counters[i]) fail("counter %zu is left at %u", i, counters[i]);
    std::fwrite(buffers[C]->data(), 1, buffers[C]->size(), stdout);
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
    Thread::current->wait(Thread::BLOCK, 0, file, line);
}

bool barrier_or(bool value, const char* file, int line) {
    Thread* const self = Thread::current;
    self->wait(Thread::BLOCK, value, file, line);
    return std::any_of(Machine::block.begin(), Machine::block.end(), [self](const Thread* one) {
        return self->from(*one, Thread::BLOCK) != 0;
    });
}

int linear_index() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

int own_lane() { return linear_index() % WARP_SIZE; }

unsigned long long exchange(unsigned long long mine, int lane, unsigned mask, const char* file,
                            int line) {
    if (mask != 0xffffffff) fail("a shuffle of the lanes %#x; only whole warps are emulated", mask);
    Thread* const self = Thread::current;
    const size_t other = linear_index() - own_lane() + lane;
    if (other >= Machine::block.size()) fail("a shuffle from lane %d, which has no thread", lane);
    self->wait(Thread::WARP, mine, file, line);
    return self->from(*Machine::block[other], Thread::WARP);
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

void copy_wait(int allowed_pending) { Thread::current->wait_copies(allowed_pending); }

}  // namespace host

int main() {
    host::Machine machine;
    for (;;) host::run_case(machine);
}
