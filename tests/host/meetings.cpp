// Where threads of a block wait for each other: barriers, shuffles, mbarriers; and asynchronous
// copies.
#include "machine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace host {

void barrier(const char* file, int line) {
    Thread::current->wait(Thread::BLOCK, 0, file, line);
}

bool barrier_or(bool value, const char* file, int line) {
    Thread* const self = Thread::current;
    self->wait(Thread::BLOCK, value, file, line);
    const auto& threads = Block::current->threads;
    return std::any_of(threads.begin(), threads.end(), [self](const Thread* one) {
        return self->from(*one, Thread::BLOCK) != 0;
    });
}

int own_lane() { return linear_index() % WARP_SIZE; }

unsigned long long exchange(unsigned long long mine, int lane, unsigned mask, const char* file,
                            int line) {
    if (mask != 0xffffffff) fail("a shuffle of the lanes %#x; only whole warps are emulated", mask);
    Thread* const self = Thread::current;
    const size_t other = linear_index() - own_lane() + lane;
    if (other >= Block::current->threads.size()) fail("a shuffle from lane %d, which has no thread", lane);
    self->wait(Thread::WARP, mine, file, line);
    return self->from(*Block::current->threads[other], Thread::WARP);
}

void copy_async(void* shared, const void* global, int bytes, bool valid) {
    if (bytes != 4 && bytes != 8 && bytes != 16) fail("asynchronous copy of %d bytes", bytes);
    if (reinterpret_cast<uintptr_t>(shared) % bytes || reinterpret_cast<uintptr_t>(global) % bytes)
        fail("misaligned asynchronous copy of %d bytes from %p to %p", bytes, global, shared);
    Copy copy{shared, bytes, {}};
    if (valid) std::memcpy(copy.value, global, bytes);
    std::memset(shared, NAN_BYTE, bytes);
    Thread::current->copies.open.push_back(copy);
}

void copy_commit() { Thread::current->copies.commit(); }

void copy_wait(int allowed_pending) {
    for (const Copy& copy : Thread::current->copies.due(allowed_pending))
        std::memcpy(copy.to, copy.value, copy.bytes);
}

unsigned shared_address(const void* address) {
    // Not from 0 on, as on a GPU, where the system has the first 1024 bytes.
    return static_cast<unsigned>(static_cast<const unsigned char*>(address) - host_shared + 1024);
}

namespace {

// The words of an mbarrier. Fresh shared memory, all ones, has another mark.
struct Phase {
    static constexpr int MARK = 1, NO_BYTES = 1 << 20;
    uint64_t pending : 20, arrivals : 20, bytes : 21, parity : 1, mark : 2;

    Phase(const Block& block, const void* at) {
        if (reinterpret_cast<uintptr_t>(at) % 8) fail("an mbarrier at %p", at);
        std::memcpy(this, block.at(at, sizeof *this), sizeof *this);
    }
    // The phase of an mbarrier in use.
    static Phase of(const Block& block, const void* at) {
        const Phase phase(block, at);
        if (phase.mark != MARK || phase.arrivals == 0 || phase.pending > phase.arrivals)
            fail("the mbarrier at byte %td of block %u was not initialised or has been overwritten",
                 static_cast<const unsigned char*>(at) - host_shared, block.rank);
        return phase;
    }
    // Bytes that are announced and have not come; less than 0 if more have come.
    int outstanding() const { return static_cast<int>(bytes) - NO_BYTES; }
    void expect(int more) {
        if (std::abs(outstanding() + more) >= NO_BYTES)
            fail("%d bytes outstanding at an mbarrier", outstanding() + more);
        bytes = outstanding() + more + NO_BYTES;
    }
    void put(const Block& block, void* at) {
        if (pending == 0 && outstanding() == 0) {
            pending = arrivals;
            parity ^= 1;
        }
        std::memcpy(block.at(at, sizeof *this), this, sizeof *this);
    }
};
static_assert(sizeof(Phase) == 8, "an mbarrier has 8 bytes");

// Counts the running thread as one that has come; whether it was the last.
bool come_to(int id, int threads) {
    if (id < 0 || id > 15) fail("barrier %d; there are 0 to 15", id);
    if (threads <= 0 || threads % WARP_SIZE) fail("barrier %d of %d threads", id, threads);
    NamedBarrier& barrier = Block::current->named[id];
    if (barrier.come && barrier.threads != threads)
        fail("barrier %d is for %d threads and for %d", id, barrier.threads, threads);
    barrier.threads = threads;
    if (++barrier.come < threads) return false;
    for (Thread* thread : barrier.waiting) thread->state = Thread::READY;
    barrier = {};
    return true;
}

}  // namespace

void named_sync(int id, int threads, At at) {
    if (come_to(id, threads)) return;
    Block::current->named[id].waiting.push_back(Thread::current);
    Thread::current->wait_for("named barrier", nullptr, 0, at.file, at.line);
}

void named_arrive(int id, int threads) { come_to(id, threads); }

void barrier_init(void* barrier, int arrivals) {
    if (arrivals < 1) fail("an mbarrier for %d arrivals", arrivals);
    Block& block = *Block::current;
    Phase phase(block, barrier);
    phase.pending = phase.arrivals = arrivals;
    phase.bytes = Phase::NO_BYTES;
    phase.parity = 0;
    phase.mark = Phase::MARK;
    phase.put(block, barrier);
    block.mbarriers.push_back(barrier);
}

void barrier_arrive(void* barrier, int expected_bytes) {
    arrive(*Block::current, barrier, expected_bytes);
}

void barrier_wait(void* barrier, int parity, At at) {
    if (parity != 0 && parity != 1) fail("a parity of %d", parity);
    if (!phase_ended(*Block::current, barrier, parity))
        Thread::current->wait_for("mbarrier", barrier, parity, at.file, at.line);
}

void arrive(const Block& block, void* barrier, int expected_bytes) {
    Phase phase = Phase::of(block, barrier);
    if (phase.pending == 0) fail("more arrivals at an mbarrier than it was made for");
    phase.expect(expected_bytes);
    --phase.pending;
    phase.put(block, barrier);
}

void complete(const Block& block, void* barrier, int bytes) {
    Phase phase = Phase::of(block, barrier);
    phase.expect(-bytes);
    phase.put(block, barrier);
}

bool phase_ended(const Block& block, const void* barrier, int parity) {
    return Phase::of(block, barrier).parity != static_cast<unsigned>(parity);
}

std::string lacking(const Block& block, const void* barrier) {
    const Phase phase = Phase::of(block, barrier);
    return std::to_string(phase.pending) + " arrivals and " + std::to_string(phase.outstanding()) +
           " bytes";
}

void check_mbarriers(const Block& block) {
    for (const void* barrier : block.mbarriers) {
        const int bytes = Phase::of(block, barrier).outstanding();
        if (bytes)
            fail("a block ends with %d bytes %s at the mbarrier at byte %td", std::abs(bytes),
                 bytes > 0 ? "announced that have not come" : "come that were not announced",
                 static_cast<const unsigned char*>(barrier) - host_shared);
    }
}

}  // namespace host
