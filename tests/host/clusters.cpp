// Where the blocks of a cluster meet: its barrier, arrivals at the barriers of another block, and
// stores to another's shared memory.
#include "machine.h"

#include <algorithm>
#include <cstring>

namespace host {
namespace {

unsigned phases;  // of the cluster's barrier that have ended
std::vector<Thread*> waiting;

bool comes(const Thread* thread) {
    return thread->state != Thread::EXITED && thread->cluster_arrivals == phases;
}

// Every thread of a warp arrives, or none, which has exited.
void check_warps(const Block& block) {
    for (size_t first = 0; first < block.threads.size(); first += WARP_SIZE) {
        const auto begin = block.threads.begin() + first;
        const auto end = begin + std::min<size_t>(WARP_SIZE, block.threads.end() - begin);
        const auto exited = [](const Thread* one) { return one->state == Thread::EXITED; };
        if (std::any_of(begin, end, exited) && !std::all_of(begin, end, exited))
            fail("divergent cluster barrier: some threads of a warp of block %u have exited",
                 block.rank);
    }
}

// Stores what the thread has released.
void publish(Thread& thread) {
    for (const RemoteStore& store : thread.remote_stores) {
        const Block& to = *Machine::cluster[store.block];
        std::memcpy(to.at(store.place, store.bytes), store.value, store.bytes);
    }
    thread.remote_stores.clear();
}

}  // namespace

Block& peer(int rank, const char* what) {
    const size_t size = Machine::cluster.size();
    if (rank < 0 || rank >= static_cast<int>(size))
        fail("%s block %d of a cluster of %zu", what, rank, size);
    Block& block = *Machine::cluster[rank];
    if (block.state == Block::ENDED)
        fail("%s block %d of the cluster, which has exited", what, rank);
    if (!block.begun) fail("%s block %d of the cluster, which has not begun", what, rank);
    return block;
}

int cluster_rank() { return Block::current->rank; }

void cluster_barrier_arrive(bool releases) {
    Thread& self = *Thread::current;
    if (self.cluster_arrivals > phases) fail("a thread arrives twice at the cluster's barrier");
    ++self.cluster_arrivals;
    self.releases = releases;
}

void cluster_barrier_wait(At at) {
    if (Thread::current->cluster_arrivals <= phases) return;
    waiting.push_back(Thread::current);
    Thread::current->wait_for("cluster", nullptr, 0, at.file, at.line);
}

bool meet_cluster() {
    for (const auto& block : Machine::cluster)
        if (std::any_of(block->threads.begin(), block->threads.end(), comes)) return false;
    if (waiting.empty()) return false;
    for (const auto& block : Machine::cluster) {
        check_warps(*block);
        for (Thread* thread : block->threads)
            if (thread->releases) publish(*thread);
        // PTX promises it for a barrier that releases only; kernels count on it for any.
        for (void* barrier : std::exchange(block->arrivals, {})) arrive(*block, barrier, 0);
        block->wake();
    }
    ++phases;
    for (Thread* thread : std::exchange(waiting, {})) thread->state = Thread::READY;
    return true;
}

void reset_cluster() {
    phases = 0;
    waiting.clear();
}

void barrier_arrive_at(void* barrier, int rank) {
    Block& block = peer(rank, "an arrival at a barrier of");
    complete(block, barrier, 0);  // faults if it is none
    if (&block == Block::current) return arrive(block, barrier, 0);
    block.arrivals.push_back(barrier);
    block.wake();
}

void cluster_store(void* to, const void* value, int bytes, int rank) {
    const Block& block = peer(rank, "a store in the shared memory of");
    if (reinterpret_cast<uintptr_t>(to) % bytes)
        fail("a misaligned store of %d bytes in another block", bytes);
    unsigned char* const place = block.at(to, bytes);
    if (&block == Block::current) {
        std::memcpy(place, value, bytes);
        return;
    }
    std::memset(place, NAN_BYTE, bytes);
    RemoteStore store{block.rank, static_cast<unsigned char*>(to), bytes, {}};
    std::memcpy(store.value, value, bytes);
    Thread::current->remote_stores.push_back(store);
}

void check_remote_stores(const Block& block) {
    for (const auto& other : Machine::cluster)
        for (const Thread* thread : other->threads)
            for (const RemoteStore& store : thread->remote_stores)
                if (store.block == block.rank)
                    fail("a block ends while a store of block %u is on its way to byte %td",
                         other->rank, store.place - host_shared);
}

}  // namespace host
