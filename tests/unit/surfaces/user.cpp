// A program of a user of gemm.hpp: every public function and type by its name and its signature.
#include "gemm.hpp"

#include <type_traits>

template <class Function, class Expected>
constexpr bool is = std::is_same_v<Function, Expected>;

static_assert(std::is_base_of_v<std::runtime_error, gemm::Error>);
static_assert(std::is_constructible_v<gemm::Error, int> && std::is_constructible_v<gemm::Error, int, int>);
static_assert(is<decltype(&gemm::Error::status), int (gemm::Error::*)() const noexcept>);
static_assert(is<decltype(&gemm::Error::driver_error), int (gemm::Error::*)() const noexcept>);
static_assert(is<decltype(&gemm::check), void (*)(int)>);

static_assert(std::is_base_of_v<gemm_product, gemm::Product>);
static_assert(std::is_constructible_v<gemm::Product, std::int64_t, std::int64_t, std::int64_t>);
static_assert(is<decltype(&gemm::workspace_size), std::size_t (*)(const gemm_product&)>);
static_assert(is<decltype(&gemm::choose), gemm_choice (*)(const gemm_product&)>);
static_assert(is<decltype(&gemm::warm_up), void (*)()>);

using Memory = gemm::StreamMemory;
static_assert(is<decltype(&Memory::allocate), void* (Memory::*)(std::size_t, CUstream)>);
static_assert(is<decltype(&Memory::release), void (Memory::*)(void*, CUstream) noexcept>);

using Workspace = gemm::Workspace;
static_assert(is<Workspace, gemm::BasicWorkspace<>> && is<Workspace, gemm::BasicWorkspace<Memory>>);
static_assert(std::is_default_constructible_v<Workspace>);
static_assert(std::is_constructible_v<Workspace, CUstream>);
static_assert(std::is_constructible_v<Workspace, CUstream, Memory>);
static_assert(!std::is_copy_constructible_v<Workspace> && !std::is_copy_assignable_v<Workspace>);
static_assert(std::is_nothrow_move_constructible_v<Workspace>);
static_assert(std::is_nothrow_move_assignable_v<Workspace>);
static_assert(is<decltype(&Workspace::get), void* (Workspace::*)() const noexcept>);
static_assert(is<decltype(&Workspace::size), std::size_t (Workspace::*)() const noexcept>);
static_assert(is<decltype(&Workspace::stream), CUstream (Workspace::*)() const noexcept>);

// Memory of the user.
struct Own {
    void* allocate(std::size_t, CUstream) { return nullptr; }
    void release(void*, CUstream) noexcept {}
};

int main() {
    gemm::BasicWorkspace<Own> workspace(nullptr, Own{});
    gemm::Product product(64, 48, 40);
    product.scale_result = nullptr;
    void (Workspace::*bytes)(std::size_t) = &Workspace::reserve;
    void (Workspace::*whole)(const gemm_product&) = &Workspace::reserve;
    void (*matmul)(const gemm_product&, gemm::BasicWorkspace<Own>&) = &gemm::matmul;
    try {
        matmul(product, workspace);
        gemm::matmul(product, workspace);
    } catch (const gemm::Error& error) {
        return error.status();
    }
    return bytes == nullptr && whole == nullptr;
}
