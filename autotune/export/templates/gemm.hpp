/* gemm.h for C++17: errors are exceptions, and a workspace owns its memory.
 *
 *     gemm::Workspace workspace(stream);              // of one stream; allocates when it has to
 *     gemm::Product product(m, n, k);                 // a gemm_product
 *     product.compute = GEMM_BF16;
 *     product.a = a, product.b = b, product.c = c;
 *     gemm::matmul(product, workspace);
 *
 * Functions are as in gemm.h and throw gemm::Error where those return a status. A header alone: link
 * the library and -ldl. */
#ifndef GEMM_HPP
#define GEMM_HPP

#include "gemm.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace gemm {

/// A status other than GEMM_OK.
class Error : public std::runtime_error {
public:
    explicit Error(int status, int driver_error = 0)
        : std::runtime_error(text(status, driver_error)),
          status_(status),
          driver_error_(driver_error) {}

    /// The gemm_status.
    int status() const noexcept { return status_; }
    /// The CUresult of the driver call that failed; 0 if none did.
    int driver_error() const noexcept { return driver_error_; }

private:
    static std::string text(int status, int driver_error) {
        const std::string message = gemm_message(status);
        return driver_error ? message + " (" + std::to_string(driver_error) + ")" : message;
    }
    int status_, driver_error_;
};

/// Throws an Error for a status other than GEMM_OK.
inline void check(int status) {
    if (status == GEMM_OK) return;
    const bool driver = status == GEMM_LOAD || status == GEMM_LAUNCH || status == GEMM_DRIVER ||
                        status == GEMM_NO_CONTEXT;
    throw Error(status, driver ? gemm_driver_error() : 0);
}

/// An m x k times a k x n matrix: batch and alpha are 1, all else is 0.
struct Product : gemm_product {
    Product(std::int64_t rows, std::int64_t columns, std::int64_t depth)
        : gemm_product(gemm_default(rows, columns, depth)) {}
};

/// Bytes of workspace that a product needs on the current device.
inline std::size_t workspace_size(const gemm_product& product) {
    std::size_t bytes = 0;
    check(gemm_workspace_size(&product, &bytes));
    return bytes;
}

/// What matmul runs on the current device.
inline gemm_choice choose(const gemm_product& product) {
    gemm_choice choice{};
    check(gemm_choose(&product, &choice));
    return choice;
}

/// Loads every kernel for the current device.
inline void warm_up() { check(gemm_warm_up()); }

/// Device memory in the order of a stream, of the driver's pool: cuMemAllocAsync and cuMemFreeAsync.
class StreamMemory {
public:
    void* allocate(std::size_t bytes, CUstream stream) {
        std::uint64_t address = 0;
        if (const int result = driver().allocate(&address, bytes, stream))
            throw Error(GEMM_DRIVER, result);
        return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
    }
    void release(void* address, CUstream stream) noexcept {
        driver().release(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address)), stream);
    }

private:
    struct Driver {
        int (*allocate)(std::uint64_t*, std::size_t, CUstream) = nullptr;
        int (*release)(std::uint64_t, CUstream) = nullptr;

        Driver() {
            void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
            if (!library) throw Error(GEMM_NO_DRIVER);
            find(library, "cuMemAllocAsync", &allocate);
            find(library, "cuMemFreeAsync", &release);
        }
        template <class Function>
        static void find(void* library, const char* name, Function* function) {
            void* symbol = dlsym(library, name);
            if (!symbol) throw Error(GEMM_OLD_DRIVER);
            std::memcpy(function, &symbol, sizeof symbol);
        }
    };
    static const Driver& driver() {
        static const Driver opened;
        return opened;
    }
};

/// The workspace of the products on one stream. It grows on demand; before a graph capture, reserve
/// what the captured products need. The context has to be current, also in the destructor.
///
/// Memory has `void* allocate(bytes, stream)`, at a multiple of 256 bytes, and `release(address,
/// stream)`, which must not free what work on the stream still uses, and must not throw.
template <class Memory = StreamMemory>
class BasicWorkspace {
public:
    explicit BasicWorkspace(CUstream stream = nullptr, Memory memory = Memory())
        : memory_(std::move(memory)), stream_(stream) {}
    ~BasicWorkspace() { free(); }
    BasicWorkspace(const BasicWorkspace&) = delete;
    BasicWorkspace& operator=(const BasicWorkspace&) = delete;
    BasicWorkspace(BasicWorkspace&& from) noexcept
        : memory_(std::move(from.memory_)),
          stream_(from.stream_),
          address_(std::exchange(from.address_, nullptr)),
          bytes_(std::exchange(from.bytes_, 0)) {}
    BasicWorkspace& operator=(BasicWorkspace&& from) noexcept {
        if (this == &from) return *this;
        free();
        memory_ = std::move(from.memory_), stream_ = from.stream_;
        address_ = std::exchange(from.address_, nullptr), bytes_ = std::exchange(from.bytes_, 0);
        return *this;
    }

    /// Has at least so many bytes ready on the stream.
    void reserve(std::size_t bytes) {
        if (bytes <= bytes_) return;
        void* address = memory_.allocate(bytes, stream_);
        if (const int status = gemm_prepare_workspace(address, bytes, stream_)) {
            memory_.release(address, stream_);
            check(status);
        }
        free();
        address_ = address, bytes_ = bytes;
    }
    /// Has what a product needs.
    void reserve(const gemm_product& product) { reserve(workspace_size(product)); }

    void* get() const noexcept { return address_; }
    std::size_t size() const noexcept { return bytes_; }
    CUstream stream() const noexcept { return stream_; }

private:
    void free() noexcept {
        if (address_) memory_.release(address_, stream_);
        address_ = nullptr, bytes_ = 0;
    }
    Memory memory_;
    CUstream stream_;
    void* address_ = nullptr;
    std::size_t bytes_ = 0;
};

using Workspace = BasicWorkspace<>;

/// Enqueues the matrix multiplication on the workspace's stream.
template <class Memory>
void matmul(const gemm_product& product, BasicWorkspace<Memory>& workspace) {
    const auto enqueue = [&] {
        return gemm_matmul(&product, workspace.get(), workspace.size(), workspace.stream());
    };
    int status = enqueue();
    if (status == GEMM_WORKSPACE_NULL || status == GEMM_WORKSPACE_SMALL) {
        workspace.reserve(product);
        status = enqueue();
    }
    check(status);
}

}  // namespace gemm

#endif
