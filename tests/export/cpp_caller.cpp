// Uses lib.hpp on the fake driver, which records its calls on standard error; the words say how.
#include "lib.hpp"

#include <iostream>
#include <type_traits>

using lib::BasicWorkspace;
using lib::Workspace;

static_assert(!std::is_copy_constructible_v<Workspace> && !std::is_copy_assignable_v<Workspace>);
static_assert(std::is_nothrow_move_constructible_v<Workspace>);

namespace {

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address << 40); }

lib::Product product(std::int64_t depth) {
    lib::Product product(64, 64, depth);
    product.a = at(1), product.b = at(2), product.c = at(3);
    return product;
}

// Memory of the caller, which keeps count.
struct Counted {
    int* alive;
    void* allocate(std::size_t, CUstream) { return ++*alive, at(9); }
    void release(void*, CUstream) noexcept { --*alive; }
};

void grown() {
    Workspace workspace(reinterpret_cast<CUstream>(7));
    lib::matmul(product(40), workspace);
    std::cerr << "size " << workspace.size() << '\n';
    lib::matmul(product(4096), workspace);
    lib::matmul(product(4096), workspace);
    workspace.reserve(workspace.size() + 256);
    std::cerr << "end\n";
}

void moved() {
    Workspace first, second, third;
    lib::matmul(product(4096), first);
    second = std::move(first);
    Workspace last(std::move(second));
    lib::matmul(product(4096), last);
    lib::matmul(product(4096), third);
    third = std::move(last);
}

void own() {
    int alive = 0;
    {
        BasicWorkspace<Counted> workspace(nullptr, Counted{&alive});
        lib::matmul(product(4096), workspace);
        std::cerr << "alive " << alive << '\n';
    }
    std::cerr << "alive " << alive << '\n';
}

void asked() {
    lib::warm_up();
    std::cerr << lib::choose(product(4096)).how << ' ' << lib::workspace_size(product(40)) << '\n';
    lib::Product empty(0, 1, 1);
    lib::choose(empty);
}

}  // namespace

int main(int, char** words) {
    const std::string verb = words[1];
    try {
        verb == "grown" ? grown() : verb == "moved" ? moved() : verb == "own" ? own() : asked();
    } catch (const lib::Error& error) {
        std::cerr << "error " << error.status() << ' ' << error.driver_error() << ' ' << error.what()
                  << '\n';
        return 1;
    }
    return 0;
}
