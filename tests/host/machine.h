// The machine that runs clusters of blocks: threads are fibers that take turns where they wait.
#pragma once

#include "cuda_host.h"

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

// The shared memory that `extern __shared__` names, of the block that runs; it starts at a multiple
// of 1024.
extern "C" unsigned char host_shared[];

namespace host {

constexpr unsigned char NAN_BYTE = 0xFF;  // floats of these bytes are NaN
constexpr size_t WARP_SIZE = 32, WARPGROUP_SIZE = 128;
constexpr unsigned CLUSTER_LIMIT = 8;  // blocks that every GPU with clusters takes
// The most dynamic shared memory that any GPU gives a block, and room to run over it.
constexpr size_t SHARED_LIMIT = 227 << 10, SHARED_MARGIN = 1 << 20;

// Ends the process with a message that names the running thread, and its stack.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...);

struct Launch {
    Instance::Run run;
    dim3 cluster;  // blocks
    dim3 grid, block;
    uint32_t shared;
    std::vector<Argument> arguments;
};

// cp.async: what it copies is kept until a wait covers it.
struct Copy {
    void* to;
    int bytes;
    unsigned char value[16];
};

// A copy of a box by the tensor memory accelerator, which runs at some moment after its issue. A
// multicast is a load for each block that it goes to.
struct BoxCopy {
    TensorMapValue map;
    unsigned char* shared;
    void* barrier;  // of a load; a store has none
    int column, row, matrix;
    unsigned issuer;  // block of the cluster
    bool done;
};

// A store to the shared memory of another block, which nobody sees before its thread releases it
// at a barrier of the cluster.
struct RemoteStore {
    unsigned block;
    unsigned char* place;
    int bytes;
    unsigned char value[16];
};

// Groups of work that a thread has committed and not yet waited for, oldest first.
template <typename T>
struct Groups {
    std::vector<T> open;
    std::vector<std::vector<T>> committed;

    void commit() { committed.push_back(std::exchange(open, {})); }
    // The work of all groups but the newest `pending`, no longer counted.
    std::vector<T> due(size_t pending) {
        std::vector<T> work;
        while (committed.size() > pending) {
            work.insert(work.end(), committed.front().begin(), committed.front().end());
            committed.erase(committed.begin());
        }
        return work;
    }
    bool empty() const { return open.empty() && committed.empty(); }
    void clear() {
        open.clear();
        committed.clear();
    }
};

// P and Q of a wgmma, and whether they have been read yet.
struct Operands {
    float p[64][32], q[32][256];
    bool read = false;
};

// One wgmma of a thread; the threads of its warpgroup share `operands`.
struct Product {
    int n, type_p, type_q;
    bool registers, transposed_p, transposed_q, add;
    unsigned* sums;
    unsigned fragment[4];
    unsigned long long p, q;
    std::shared_ptr<Operands> operands;
};

// The sums of a thread that unfinished wgmmas add to, while the thread sees NaN in their place:
// floats or int32, as words.
struct Sums {
    unsigned* place;
    int pending;
    std::vector<unsigned> values;
    std::vector<unsigned> left;  // what the last wait left in the thread's registers
};

// Where a fiber stopped. Unlike swapcontext this makes no system call, and ASan keeps what it knows
// about the fiber's stack.
struct Place {
    void* registers[5];
};

// A CUDA thread: a fiber that runs one kernel invocation after another.
class Thread {
public:
    // Waiting for its warp, its warpgroup, its block or something else, ready to run, or done.
    enum State { WARP, WARPGROUP, BLOCK, EVENT, READY, EXITED };
    static constexpr size_t MEETINGS = BLOCK + 1;

    // Done once when all have met.
    using Action = void (*)(const std::vector<Thread*>&);

    explicit Thread(const Launch* const& launch);
    Thread(const Thread&) = delete;

    // Begins the kernel anew.
    void start(dim3 index);

    // Runs up to where the thread waits next, or to the end of the kernel.
    void resume();

    // Brings a value and stops until the scheduler finds that all have come who are waited for.
    // The value brought before stays readable: who still wants it has not come here yet.
    void wait(State whom, unsigned long long value, const char* file, int line,
              Action action = nullptr);

    // Stops until `mbarrier` has ended a phase of that parity or, without one, until the state is
    // set to READY.
    void wait_for(const char* what, const void* mbarrier, int parity, const char* file, int line);

    // The value that `other` brought to where this thread last waited.
    unsigned long long from(const Thread& other, State whom) const {
        return other.brought_[whom][count_[whom] % 2];
    }
    // The address that this thread brought there.
    template <typename T>
    T* brought(State whom) const {
        return reinterpret_cast<T*>(brought_[whom][count_[whom] % 2]);
    }

    static inline Thread* current;
    State state = EXITED;
    const char* file = nullptr;  // where the thread waits, and for what
    int line = 0;
    const char* what = nullptr;
    Action action = nullptr;
    const void* mbarrier = nullptr;
    int parity = 0;

    Groups<Copy> copies;
    Groups<std::shared_ptr<BoxCopy>> stores;
    std::vector<RemoteStore> remote_stores;
    unsigned cluster_arrivals = 0;  // at the barrier of the cluster
    bool releases = false;  // its remote stores, by the last arrival
    Groups<Product> products;
    std::vector<Sums> sums;
    size_t multiplied = 0;  // wgmmas so far
    bool fenced = false;  // a wgmma_fence has come since the thread last saw sums

private:
    static constexpr size_t STACK = 256 << 10;

    static void enter();
    void yield();
    void check_end();

    static inline Place scheduler_;
    static inline const void* scheduler_stack_;
    static inline size_t scheduler_stack_size_;

    const Launch* const& launch_;
    void* stack_;
    bool started_ = false;
    Place place_;
    dim3 index_;
    unsigned count_[MEETINGS];
    unsigned long long brought_[MEETINGS][2];
};

struct NamedBarrier {
    int threads = 0, come = 0;
    std::vector<Thread*> waiting;
};

// A block of the cluster that runs: its threads, its shared memory and what is on its way there.
class Block {
public:
    // Can go on, waits for other blocks, or all its threads have exited.
    enum State { ABLE, STUCK, ENDED };

    Block(unsigned block_rank, std::vector<Thread*> block_threads)
        : rank(block_rank), threads(std::move(block_threads)), order_(threads) {}

    void start(dim3 index, size_t shared);

    // Runs some of the block's threads some way.
    void advance(std::mt19937& random);

    // Brings the block's shared memory to `host_shared`, where its threads see it.
    void enter();

    // Where `bytes` bytes are that this block sees at `place`; faults outside its shared memory.
    unsigned char* at(const void* place, size_t bytes) const;

    // Something has happened that the block may wait for.
    void wake() {
        if (state == STUCK) state = ABLE;
    }

    static inline Block* current;
    const unsigned rank;
    const std::vector<Thread*> threads;  // in CUDA's order
    State state = ABLE;
    bool begun = false;

    // Copies of boxes, and arrivals of other blocks at its barriers, that are on their way.
    std::vector<std::shared_ptr<BoxCopy>> copies;
    std::vector<void*> arrivals;
    std::vector<void*> mbarriers;  // initialised
    NamedBarrier named[16];
    // Of the wgmmas of each warpgroup.
    std::vector<std::vector<std::shared_ptr<Operands>>> operands;

private:
    bool go_on(std::mt19937& random);
    bool deliver_one(std::mt19937& random);
    void end();

    std::vector<Thread*> order_;
    dim3 index_;
    std::vector<unsigned char> memory_;  // while another block runs
};

class Machine {
public:
    void run(const Launch& launch);

    // The blocks of the cluster that runs, and the bytes of shared memory that each has.
    static inline std::vector<std::unique_ptr<Block>> cluster;
    static inline size_t shared;

private:
    static void check(const Launch& launch);
    void run_cluster(dim3 index);

    const Launch* launch_ = nullptr;
    std::vector<std::unique_ptr<Thread>> threads_;
    std::mt19937 random_;
};

// The index of the running thread in its block.
int linear_index();

// Whether the phase of that parity has ended, and what it lacks if not.
bool phase_ended(const Block& block, const void* mbarrier, int parity);
std::string lacking(const Block& block, const void* mbarrier);
// Counts an arrival, and bytes that have come.
void arrive(const Block& block, void* mbarrier, int expected_bytes);
void complete(const Block& block, void* mbarrier, int bytes);
// Faults if a barrier of the block still waits for bytes, or has had too many.
void check_mbarriers(const Block& block);

// Does what was issued.
void copy_box(BoxCopy& copy);

// The block of the cluster that the running thread does `what` to; faults if it cannot.
Block& peer(int rank, const char* what);
// Lets the threads of the cluster go on if all have met.
bool meet_cluster();
void reset_cluster();
// Faults if a store is on its way to the block.
void check_remote_stores(const Block& block);
// Ends with a list of who waits where.
[[noreturn]] void deadlock();

}  // namespace host
