// A linear layer, max(X W + bias, 0), of an exported library in C++17.
//
//     autotune export 64x256x128:f32:bias_relu --device h100 --name gemm --out gemm
//     cmake -S gemm -B gemm/build && cmake --build gemm/build
//     cmake --install gemm/build --prefix $PWD/installed
//     cmake -S examples/cpp -B build -DCMAKE_PREFIX_PATH=$PWD/installed && cmake --build build
//     build/linear
//
// Objects own the memory, and errors are exceptions. The exit status is 0 if the result equals that
// of the CPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gemm.hpp"

// The part of cuda.h (CUDA toolkit) that is used here.
using CUdeviceptr = unsigned long long;
extern "C" {
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void* context);
int cuCtxSynchronize();
int cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes);
int cuMemFree_v2(CUdeviceptr address);
int cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes);
int cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes);
}

namespace {

void cuda(int status) {
    if (status) throw std::runtime_error("the driver gave " + std::to_string(status));
}

// The primary context of the first GPU, current in this thread.
class Context {
public:
    Context() {
        void* context;
        cuda(cuInit(0));
        cuda(cuDevicePrimaryCtxRetain(&context, 0));
        cuda(cuCtxSetCurrent(context));
    }
    ~Context() { cuDevicePrimaryCtxRelease_v2(0); }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
};

// Device memory.
class Memory {
public:
    explicit Memory(std::size_t bytes) {
        cuda(cuMemAlloc_v2(&address_, bytes));
    }
    explicit Memory(const std::vector<float>& from) : Memory(from.size() * sizeof(float)) {
        cuda(cuMemcpyHtoD_v2(address_, from.data(), from.size() * sizeof(float)));
    }
    ~Memory() { cuMemFree_v2(address_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    void* get() const { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address_)); }
    void read(std::vector<float>& to) const {
        cuda(cuMemcpyDtoH_v2(to.data(), address_, to.size() * sizeof(float)));
    }

private:
    CUdeviceptr address_ = 0;
};

float run() {
    constexpr int rows = 64, out = 256, in = 128;
    std::vector<float> x(rows * in), w(in * out), bias(out), y(rows * out);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 5) - 2;
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i % 11) - 5;

    const Context context;
    const Memory a(x), b(w), added(bias), c(y);
    gemm::Product layer(rows, out, in);
    layer.epilogue = GEMM_BIAS_RELU;
    layer.a = a.get(), layer.b = b.get(), layer.c = c.get(), layer.bias = added.get();
    gemm::Workspace workspace;
    gemm::matmul(layer, workspace);
    cuda(cuCtxSynchronize());
    c.read(y);

    float worst = 0;
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < out; ++j) {
            float sum = bias[j];
            for (int p = 0; p < in; ++p) sum += x[i * in + p] * w[p * out + j];
            worst = std::max(worst, std::abs(y[i * out + j] - std::max(sum, 0.0f)));
        }
    return worst;
}

}  // namespace

int main() try {
    const float worst = run();
    std::cout << "largest error " << worst << '\n';
    return worst != 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
