// The scheduler: clusters one after the other, the blocks of a cluster in turns, and the threads of
// a block as far as they can go.
#include "machine.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace host {

void Machine::run(const Launch& launch) {
    check(launch);
    launch_ = &launch;
    gridDim = launch.grid;
    blockDim = launch.block;
    shared = launch.shared;
    const size_t count = launch.block.x * launch.block.y * launch.block.z, size = launch.cluster.x;
    while (threads_.size() < size * count) threads_.push_back(std::make_unique<Thread>(launch_));
    cluster.clear();
    for (size_t rank = 0; rank < size; ++rank) {
        std::vector<Thread*> threads;
        for (size_t i = 0; i < count; ++i) threads.push_back(threads_[rank * count + i].get());
        cluster.push_back(std::make_unique<Block>(rank, std::move(threads)));
    }
    __asan_poison_memory_region(host_shared + shared, SHARED_LIMIT + SHARED_MARGIN - shared);
    // In a fresh order each time: nothing says which block of a tile is the last.
    const unsigned along_x = gridDim.x / size;
    std::vector<unsigned> clusters(along_x * gridDim.y * gridDim.z);
    std::iota(clusters.begin(), clusters.end(), 0);
    std::shuffle(clusters.begin(), clusters.end(), random_);
    for (const unsigned at : clusters)
        run_cluster({at % along_x, at / along_x % gridDim.y, at / (along_x * gridDim.y)});
    __asan_unpoison_memory_region(host_shared, SHARED_LIMIT + SHARED_MARGIN);
}

void Machine::check(const Launch& launch) {
    const dim3 &g = launch.grid, &b = launch.block, &c = launch.cluster;
    if (!g.x || !g.y || !g.z || g.x > 0x7FFFFFFF || g.y > 65535 || g.z > 65535)
        fail("impossible grid %u %u %u", g.x, g.y, g.z);
    if (!b.x || !b.y || !b.z || 1ull * b.x * b.y * b.z > 1024 || b.z > 64)
        fail("impossible block %u %u %u", b.x, b.y, b.z);
    if (launch.shared > SHARED_LIMIT) fail("%u bytes of shared memory", launch.shared);
    if (c.y != 1 || c.z != 1) fail("a cluster %u %u %u; only x is emulated", c.x, c.y, c.z);
    if (c.x < 1 || c.x > CLUSTER_LIMIT) fail("a cluster of %u blocks", c.x);
    if (g.x % c.x) fail("a grid of %u blocks is not in whole clusters of %u", g.x, c.x);
}

void Machine::run_cluster(dim3 index) {
    const unsigned size = cluster.size();
    reset_cluster();
    Block::current = nullptr;
    for (auto& block : cluster) block->start({index.x * size + block->rank, index.y, index.z}, shared);
    for (;;) {
        std::vector<Block*> able;
        bool ended = true;
        for (auto& block : cluster) {
            if (block->state == Block::ABLE) able.push_back(block.get());
            ended = ended && block->state == Block::ENDED;
        }
        if (ended) return;
        if (able.empty()) {
            if (!meet_cluster()) deadlock();
            continue;
        }
        able[random_() % able.size()]->advance(random_);
    }
}

void Block::start(dim3 index, size_t shared) {
    index_ = index;
    state = ABLE;
    begun = false;
    memory_.assign(shared, NAN_BYTE);
    copies.clear();
    arrivals.clear();
    mbarriers.clear();
    for (NamedBarrier& barrier : named) barrier = {};
    operands.assign((threads.size() + WARPGROUP_SIZE - 1) / WARPGROUP_SIZE, {});
    for (size_t i = 0; i < threads.size(); ++i) {
        const unsigned x = i % blockDim.x, y = i / blockDim.x % blockDim.y;
        threads[i]->start({x, y, static_cast<unsigned>(i) / (blockDim.x * blockDim.y)});
    }
}

void Block::enter() {
    if (current == this) return;
    if (current) std::copy_n(host_shared, memory_.size(), current->memory_.begin());
    std::copy(memory_.begin(), memory_.end(), host_shared);
    current = this;
    blockIdx = index_;
}

unsigned char* Block::at(const void* place, size_t bytes) const {
    const ptrdiff_t offset = static_cast<const unsigned char*>(place) - host_shared;
    if (offset < 0 || offset + bytes > memory_.size())
        fail("%zu bytes at byte %td of shared memory of %zu", bytes, offset, memory_.size());
    auto* memory = this == current ? host_shared : const_cast<unsigned char*>(memory_.data());
    return memory + offset;
}

// A block often runs as far as it can before the others of its cluster go on: who signals one that
// has exited is found so.
void Block::advance(std::mt19937& random) {
    enter();
    begun = true;
    const bool far = Machine::cluster.size() == 1 || random() % 2;
    for (unsigned turns = random() % 16; far || turns > 0; --turns) {
        // A fresh order each time, so that a missing barrier meets readers before writers.
        std::shuffle(order_.begin(), order_.end(), random);
        for (Thread* thread : order_)
            if (thread->state == Thread::READY) thread->resume();
        if (!go_on(random)) {
            if (state != ENDED) state = STUCK;
            return;
        }
    }
}

void Block::end() {
    for (const auto& copy : copies) {
        if (copy->barrier)
            fail("a block ends while a bulk load of block %u is on its way to byte %td",
                 copy->issuer, copy->shared - host_shared);
        // A store has read its box by now, and may write it until the launch ends.
        copy_box(*copy);
    }
    copies.clear();
    for (void* barrier : arrivals)
        fail("a block ends while an arrival of another is on its way to the mbarrier at byte %td",
             static_cast<unsigned char*>(barrier) - host_shared);
    check_remote_stores(*this);
    check_mbarriers(*this);
    state = ENDED;
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
bool let_groups_go_on(const Block& block, Thread::State whom, size_t size) {
    bool any = false;
    for (size_t first = 0; first < block.threads.size(); first += size) {
        const auto begin = block.threads.begin() + first;
        const auto end = begin + std::min<size_t>(size, block.threads.end() - begin);
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
bool let_events_go_on(const Block& block) {
    bool any = false;
    for (Thread* thread : block.threads) {
        if (thread->state == Thread::EVENT && thread->mbarrier &&
            phase_ended(block, thread->mbarrier, thread->parity))
            thread->state = Thread::READY;
        any = any || thread->state == Thread::READY;
    }
    return any;
}

// Threads first to next - 1 of a block, which all wait for the same, or have exited.
std::string waiting(const Block& block, size_t first, size_t next) {
    const Thread& one = *block.threads[first];
    std::string text = "\n  threads " + std::to_string(first) + ".." + std::to_string(next - 1);
    if (Machine::cluster.size() > 1) text += " of block " + std::to_string(block.rank);
    if (one.state == Thread::EXITED) return text + " have exited";
    if (one.state == Thread::EVENT && one.mbarrier) {
        const auto byte = static_cast<const unsigned char*>(one.mbarrier) - host_shared;
        text += " wait for parity " + std::to_string(one.parity) + " of the barrier at byte " +
                std::to_string(byte) + ", which lacks " + lacking(block, one.mbarrier) + ",";
    } else {
        const char* what = one.state == Thread::EVENT ? one.what : MEETINGS[one.state];
        text += std::string(" wait for the ") + what;
    }
    return text + " at " + one.file + ":" + std::to_string(one.line);
}

}  // namespace

void deadlock() {
    std::string text;
    for (const auto& block : Machine::cluster) {
        const auto& threads = block->threads;
        for (size_t first = 0, next; first < threads.size(); first = next) {
            const Thread& one = *threads[first];
            for (next = first + 1; next < threads.size(); ++next) {
                const Thread& two = *threads[next];
                if (two.state != one.state || two.line != one.line || two.file != one.file ||
                    two.mbarrier != one.mbarrier || two.parity != one.parity)
                    break;
            }
            text += waiting(*block, first, next);
        }
    }
    fail("deadlock:%s\n", text.c_str());
}

// Whether any thread of the block, which is `current`, can go on.
bool Block::go_on(std::mt19937& random) {
    if (std::all_of(threads.begin(), threads.end(), exited)) {
        end();
        return false;
    }
    const bool warps = let_groups_go_on(*this, Thread::WARP, WARP_SIZE);
    if (let_events_go_on(*this) || warps) {
        if (random() % 4 == 0) deliver_one(random);
        return true;
    }
    // Copies and multiplications come late, so that a thread that does not wait for them meets the
    // values from before.
    const auto finish = [&] {
        return let_groups_go_on(*this, Thread::WARPGROUP, WARPGROUP_SIZE);
    };
    const bool finishes_first = random() % 2;
    if (finishes_first && finish()) return true;
    if (deliver_one(random) || (!finishes_first && finish())) return true;
    const auto elsewhere = [](const Thread* thread) {
        return thread->state != Thread::BLOCK && thread->state != Thread::EXITED;
    };
    if (std::any_of(threads.begin(), threads.end(), elsewhere)) return false;
    let_go_on(threads, MEETINGS[Thread::BLOCK]);
    return true;
}

// Does one of the copies and arrivals under way, which overtake each other; false if there are none.
bool Block::deliver_one(std::mt19937& random) {
    const size_t count = copies.size() + arrivals.size();
    if (count == 0) return false;
    const size_t at = random() % count;
    if (at < copies.size()) {
        std::swap(copies[at], copies.back());
        const std::shared_ptr<BoxCopy> copy = copies.back();
        copies.pop_back();
        copy_box(*copy);
    } else {
        std::swap(arrivals[at - copies.size()], arrivals.back());
        arrive(*this, arrivals.back(), 0);
        arrivals.pop_back();
    }
    return true;
}

}  // namespace host
