// Threads as fibers.
#include "machine.h"

#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

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
    remote_stores.clear();
    cluster_arrivals = 0;
    releases = false;
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
    if (!remote_stores.empty()) fail("a thread ends without releasing its stores in other blocks");
}

int linear_index() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

}  // namespace host
