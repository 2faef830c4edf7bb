// Threads as fibers, and the scheduler that lets them go on.
#include "machine.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

dim3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" {
alignas(1024) unsigned char host_shared[host::SHARED_LIMIT + host::SHARED_MARGIN];
}

namespace host {

void fail(const char* format, ...) {
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

#define UNSANITIZED __attribute__((noinline, no_sanitize("address", "undefined")))

// GCC wants __builtin_longjmp in another function than __builtin_setjmp.
UNSANITIZED static void go_on_at(Place& place) { __builtin_longjmp(place.registers, 1); }

UNSANITIZED static void jump(Place& from, Place& to) {
    if (__builtin_setjmp(from.registers) == 0) go_on_at(to);
}

UNSANITIZED static void jump(Place& from, ucontext_t& to) {
    if (__builtin_setjmp(from.registers) == 0) setcontext(&to);
}

Thread::Thread(const Launch* const& launch) : launch_(launch) {
    stack_ = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack_ == MAP_FAILED) fail("no memory for the stack of a thread");
    mprotect(stack_, 4096, PROT_NONE);
}

void Thread::start(dim3 index) {
    index_ = index;
    state = READY;
    std::fill(std::begin(count_), std::end(count_), 0);
    copies.clear();
    stores.clear();
    products.clear();
    sums.clear();
    multiplied = 0;
    fenced = false;
}

void Thread::resume() {
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

void Thread::wait(State whom, unsigned long long value, const char* at_file, int at_line,
                  Action at_action) {
    brought_[whom][++count_[whom] % 2] = value;
    state = whom;
    file = at_file;
    line = at_line;
    action = at_action;
    yield();
}

void Thread::wait_for(const char* for_what, const void* for_barrier, int for_parity,
                      const char* at_file, int at_line) {
    state = EVENT;
    what = for_what;
    mbarrier = for_barrier;
    parity = for_parity;
    file = at_file;
    line = at_line;
    yield();
}

void Thread::yield() {
    void* fake_stack;
    __sanitizer_start_switch_fiber(&fake_stack, scheduler_stack_, scheduler_stack_size_);
    jump(place_, scheduler_);
    __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack_, &scheduler_stack_size_);
}

void Thread::enter() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_size_);
    Thread* const self = current;
    for (;;) {
        self->launch_->run(self->launch_->arguments.data(), self->launch_->arguments.size());
        self->check_end();
        self->state = EXITED;
        self->yield();
    }
}

// Shared memory goes to the next block while they still work on it.
void Thread::check_end() {
    if (!stores.empty()) fail("a thread ends without waiting for its bulk stores");
    if (!products.empty()) fail("a thread ends without waiting for its wgmmas");
}

void Machine::run(const Launch& launch) {
    check(launch);
    launch_ = &launch;
    gridDim = launch.grid;
    blockDim = launch.block;
    shared = launch.shared;
    const size_t count = launch.block.x * launch.block.y * launch.block.z;
    while (threads_.size() < count) threads_.push_back(std::make_unique<Thread>(launch_));
    block.resize(count);
    for (size_t i = 0; i < count; ++i) block[i] = threads_[i].get();
    order_ = block;
    __asan_poison_memory_region(host_shared + shared, SHARED_LIMIT + SHARED_MARGIN - shared);
    // In a fresh order each time: nothing says which block of a tile is the last.
    std::vector<unsigned> blocks(gridDim.x * gridDim.y * gridDim.z);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_);
    for (const unsigned at : blocks) {
        blockIdx = {at % gridDim.x, at / gridDim.x % gridDim.y, at / (gridDim.x * gridDim.y)};
        run_block();
    }
    __asan_unpoison_memory_region(host_shared, SHARED_LIMIT + SHARED_MARGIN);
}

void Machine::check(const Launch& launch) {
    const dim3 &g = launch.grid, &b = launch.block;
    if (!g.x || !g.y || !g.z || g.x > 0x7FFFFFFF || g.y > 65535 || g.z > 65535)
        fail("impossible grid %u %u %u", g.x, g.y, g.z);
    if (!b.x || !b.y || !b.z || 1ull * b.x * b.y * b.z > 1024 || b.z > 64)
        fail("impossible block %u %u %u", b.x, b.y, b.z);
    if (launch.shared > SHARED_LIMIT) fail("%u bytes of shared memory", launch.shared);
}

void Machine::run_block() {
    std::memset(host_shared, NAN_BYTE, shared);
    copies.clear();
    reset_named_barriers();
    reset_operands();
    for (size_t i = 0; i < block.size(); ++i) {
        const unsigned x = i % blockDim.x, y = i / blockDim.x % blockDim.y;
        block[i]->start({x, y, static_cast<unsigned>(i) / (blockDim.x * blockDim.y)});
    }
    do {
        // A fresh order each time, so that a missing barrier meets readers before writers.
        std::shuffle(order_.begin(), order_.end(), random_);
        for (Thread* thread : order_)
            if (thread->state == Thread::READY) thread->resume();
    } while (go_on());
    // What was stored has been read; when it is written is nobody's business before the end.
    for (const auto& copy : copies) {
        if (copy->barrier) fail("a block ends while bulk loads are on their way");
        copy_box(*copy);
    }
}

namespace {

bool exited(const Thread* thread) { return thread->state == Thread::EXITED; }

constexpr const char* MEETINGS[] = {"warp", "warpgroup", "barrier"};

// Lets threads go on that have all met, as `what` says.
void let_go_on(const std::vector<Thread*>& threads, const char* what) {
    const Thread* first = *std::find_if_not(threads.begin(), threads.end(), exited);
    for (Thread* thread : threads) {
        if (exited(thread))
            fail("divergent %s: some threads have exited, others wait at %s:%d", what, first->file,
                 first->line);
        if (thread->line != first->line || thread->file != first->file)
            fail("divergent %s: some threads wait at %s:%d, others at %s:%d", what, first->file,
                 first->line, thread->file, thread->line);
    }
    if (first->action) first->action(threads);
    for (Thread* thread : threads) thread->state = Thread::READY;
}

// Whether any warps or warpgroups, of `size` threads, have met. Who waits for something else, or
// for a smaller group, may still come.
bool let_groups_go_on(Thread::State whom, size_t size) {
    bool any = false;
    for (size_t first = 0; first < Machine::block.size(); first += size) {
        const auto begin = Machine::block.begin() + first;
        const auto end = begin + std::min<size_t>(size, Machine::block.end() - begin);
        const auto waits = [=](const Thread* one) { return one->state == whom; };
        const auto comes = [=](const Thread* one) {
            return one->state == Thread::EVENT || one->state == Thread::READY || one->state < whom;
        };
        if (std::none_of(begin, end, waits) || std::any_of(begin, end, comes)) continue;
        any = true;
        let_go_on(std::vector<Thread*>(begin, end), MEETINGS[whom]);
    }
    return any;
}

// Whether anything has happened that a thread waited for.
bool let_events_go_on() {
    bool any = false;
    for (Thread* thread : Machine::block) {
        if (thread->state == Thread::EVENT && thread->mbarrier &&
            phase_ended(thread->mbarrier, thread->parity))
            thread->state = Thread::READY;
        any = any || thread->state == Thread::READY;
    }
    return any;
}

// Ends with a list of who waits where.
[[noreturn]] void deadlock() {
    std::string text;
    const auto& block = Machine::block;
    for (size_t first = 0, next; first < block.size(); first = next) {
        const Thread& one = *block[first];
        for (next = first + 1; next < block.size(); ++next) {
            const Thread& two = *block[next];
            if (two.state != one.state || two.line != one.line || two.file != one.file ||
                two.mbarrier != one.mbarrier || two.parity != one.parity)
                break;
        }
        char part[400];
        const std::string who = std::to_string(first) + ".." + std::to_string(next - 1);
        if (one.state == Thread::EXITED)
            std::snprintf(part, sizeof part, "\n  threads %s have exited", who.c_str());
        else if (one.state == Thread::EVENT && one.mbarrier)
            std::snprintf(part, sizeof part,
                          "\n  threads %s wait for parity %d of the barrier at byte %td at %s:%d",
                          who.c_str(), one.parity,
                          static_cast<const unsigned char*>(one.mbarrier) - host_shared, one.file,
                          one.line);
        else
            std::snprintf(part, sizeof part, "\n  threads %s wait for the %s at %s:%d", who.c_str(),
                          one.state == Thread::EVENT ? one.what : MEETINGS[one.state], one.file,
                          one.line);
        text += part;
    }
    fail("deadlock:%s\n", text.c_str());
}

}  // namespace

// Whether any thread can go on; false if all have exited.
bool Machine::go_on() {
    const bool warps = let_groups_go_on(Thread::WARP, WARP_SIZE);
    if (let_events_go_on() || warps) {
        if (random_() % 4 == 0) copy_one();
        return true;
    }
    // What runs on its own comes late, so that who does not wait for it meets what was before.
    const auto finish = [] { return let_groups_go_on(Thread::WARPGROUP, WARPGROUP_SIZE); };
    if (random_() % 2 ? finish() || copy_one() : copy_one() || finish()) return true;
    if (std::all_of(block.begin(), block.end(), exited)) return false;
    const auto elsewhere = [](const Thread* thread) {
        return thread->state != Thread::BLOCK && thread->state != Thread::EXITED;
    };
    if (std::any_of(block.begin(), block.end(), elsewhere)) deadlock();
    let_go_on(block, MEETINGS[Thread::BLOCK]);
    return true;
}

// Does one of the copies under way, which overtake each other; false if there are none.
bool Machine::copy_one() {
    if (copies.empty()) return false;
    std::swap(copies[random_() % copies.size()], copies.back());
    const std::shared_ptr<BoxCopy> copy = copies.back();
    copies.pop_back();
    if (!copy->done) copy_box(*copy);
    return true;
}

int linear_index() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

}  // namespace host
