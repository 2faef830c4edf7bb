// The barriers, bulk copies and tensor cores of the machine that `launcher.cpp` runs, for the
// headers of `hopper/` here and for mma/instructions.cuh.
#pragma once

namespace host {

// Where the host says that a wrapper was called.
struct At {
    const char* file;
    int line;
};

// The content of the 128 bytes of a tensor map on the host.
struct TensorMapValue {
    unsigned long long mark;
    unsigned char* base;
    long long columns, rows, batch, pitch, stride;  // the last two in bytes
    int box_columns, box_rows, swizzle, element_bytes;
    int to_tf32;

    static constexpr unsigned long long MARK = 0x70616d726f736e74;
};
static_assert(sizeof(TensorMapValue) <= 128, "a tensor map has 128 bytes");

// An offset that is congruent to the address modulo 1024.
unsigned shared_address(const void* address);

// mbarrier: faults on one that was not initialised or that more arrive at than it was made for.
void barrier_init(void* barrier, int arrivals);
void barrier_arrive(void* barrier, int expected_bytes);
void barrier_wait(void* barrier, int parity, At at);

// The barrier of a cluster. What a thread has stored in other blocks is there when a barrier at
// which it released it is over.
int cluster_rank();
void cluster_barrier_arrive(bool releases);
void cluster_barrier_wait(At at);

// To block `rank` of the cluster, which must have begun and not have exited: an arrival, which comes
// some time later, and a store of up to 16 bytes.
void barrier_arrive_at(void* barrier, int rank);
void cluster_store(void* to, const void* value, int bytes, int rank);

// bar.sync and bar.arrive of whole warps.
void named_sync(int id, int threads, At at);
void named_arrive(int id, int threads);

// Loads fill the box with NaN until they are done; a thread waits for its own stores.
void tma_load(void* to, const void* map, void* barrier, int column, int row, int matrix);
void tma_load_multicast(void* to, const void* map, void* barrier, int column, int row, int matrix,
                        unsigned blocks);
void tma_store(const void* map, const void* from, int column, int row, int matrix);
void tma_store_commit();
void tma_store_wait(int allowed_pending);

// How operands are numbered: TYPE of common/number.cuh, 0 meaning tf32.
enum { TF32, F16, BF16, E4M3, E5M2, S8 };

// d += a b of 16 x k by k x 8, spread over the lanes of a warp as PTX says; k is 32, 16 or 8. The
// sums are int32 if the operands are int8, else floats.
void mma(int type_a, int type_b, int k, void* d, const unsigned* a, const unsigned* b, At at);

// ldmatrix, or else stmatrix, of `count` matrices of 8 x 8 16-bit elements: lane i brings the
// address of row i % 8 of matrix i / 8.
void move_matrices(unsigned* values, int count, bool transposed, bool load, void* row, At at);

// d = add d + P Q of 64 x K by K x n, floats or int32 as above. `fragment` is P if it is in
// registers.
void wgmma(int n, int type_p, int type_q, void* d, const unsigned* fragment, unsigned long long p,
           unsigned long long q, bool transposed_p, bool transposed_q, bool add);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int allowed_pending, At at);

// As cvt.rna.tf32.f32: to the nearest, ties away from zero.
float round_to_tf32(float x);

// The functions that mma/instructions.cuh calls.
inline void mma16816(int type, float* d, const unsigned* a, const unsigned* b) {
    mma(type, type, 16, d, a, b, {__FILE__, __LINE__});
}
inline void mma16832(int type_a, int type_b, void* d, const unsigned* a, const unsigned* b) {
    mma(type_a, type_b, 32, d, a, b, {__FILE__, __LINE__});
}
inline void mma1688_tf32(float* d, const unsigned* a, const unsigned* b) {
    mma(TF32, TF32, 8, d, a, b, {__FILE__, __LINE__});
}
inline void mma1688_f16(float* d, const unsigned* a, unsigned b) {
    mma(F16, F16, 8, d, a, &b, {__FILE__, __LINE__});
}
inline void ldmatrix(unsigned* to, int count, const void* row, bool transposed) {
    move_matrices(to, count, transposed, true, const_cast<void*>(row), {__FILE__, __LINE__});
}

}  // namespace host

// As a last parameter: the place of the call.
#define HOST_AT const host::At at = {__builtin_FILE(), __builtin_LINE()}
