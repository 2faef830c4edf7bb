// The epilogue of `mma`: stores a tile of C.
#pragma once

#include "mma/shape.cuh"

// Stores the sums of a thread's tile: straight from registers, or through a strip of shared memory
// that holds 16 rows of the warp's tile as C has them.
template <class S>
class TileStore {
    using Args = typename S::Args;
    using Result = typename S::Result;
    // Of a gated tile a thread holds the gates and what they are for: in neighbouring blocks of 8
    // columns, or, TRANSPOSED, in the two rows of one.
    static constexpr bool GATED = is_gated(S::EPILOGUE), HALF_WIDE = GATED && !S::TRANSPOSED;
    static constexpr int WIDTH = HALF_WIDE ? S::WN / 2 : S::WN;  // of what a warp stores
    // Rows of a strip start at multiples of 16 bytes.
    static constexpr int PITCH = WIDTH + (S::FP8_RESULT ? 16 : 8), VC = S::VC;
    static constexpr bool RESIDUAL = has_residual(S::EPILOGUE);

public:
    static constexpr int W = S::NEIGHBOURS;
    static constexpr int BLOCKS = HALF_WIDE ? 2 : W;  // that are stored together
    static_assert(!HALF_WIDE || (W == 1 && S::COLUMNS % 2 == 0), "pairs of blocks");

    // `shared` is free for the strips of a slice.
    __device__ __forceinline__ TileStore(const Args& args, const Place& at, float* shared,
                                         int thread, int lane)
        : args_(args), strip_(reinterpret_cast<Result*>(shared) + (thread / 32) * 16 * PITCH),
          lane_(lane), g_(lane / 4), t_(lane % 4), top_(at.row + at.thread_row),
          left_(at.column + at.thread_column), target_(args.c + blockIdx.z * args.stride_c),
          residual_(RESIDUAL ? args.residual + blockIdx.z * args.stride_r : nullptr),
          scale_(S::SCALE == Scale::TENSOR ? __ldg(args.scale_a) * __ldg(args.scale_b) : 1.0f),
          scaling_(args.scale_c) {}

    // The sums of BLOCKS blocks from (i, j) on; W of them hold 2 W neighbours of a row.
    __device__ __forceinline__ void store(int i, int j, const typename S::Sum (*block)[4]) const {
        if constexpr (S::OUTPUT == ElementType::S32)
            store_sums(i, j, *block);
        else if constexpr (sizeof(typename S::TypeA) == 1)
            store_scaled(i, j, block);
        else
            store_finished(i, j, block);
    }

private:
    __device__ __forceinline__ void store_finished(int i, int j, const float (*block)[4]) const {
        if constexpr (GATED && S::TRANSPOSED)
            store_gated_rows(i, j, *block);
        else if constexpr (GATED)
            store_gated_columns(i, j, block);
        else
            store_floats(i, j, block);
    }

    // A block of C from one of gates and another.
    __device__ __forceinline__ void store_gated_columns(int i, int j,
                                                        const float (*block)[4]) const {
        float values[1][4];
#pragma unroll
        for (int e = 0; e < 4; ++e) values[0][e] = swiglu(block[0][e], block[1][e]);
        store_floats(i, j / 2, values);
    }

    __device__ __forceinline__ void store_gated_rows(int i, int j, const float (&block)[4]) const {
        const int row = top_ / 2 + 8 * i + g_;
        if (row >= args_.m / 2) return;
#pragma unroll
        for (int e = 0; e < 2; ++e)
            if (column_of(j, e) < args_.n)
                target_[column_of(j, e) * args_.ldc + row] =
                    from_float<Result>(scaled(swiglu(block[e], block[2 + e])));
    }

    __device__ __forceinline__ void store_floats(int i, int j, const float (*block)[4]) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            alignas(16) float values[2 * W];
#pragma unroll
            for (int v = 0; v < 2 * W; ++v)
                values[v] = S::APART ? block[v % W][2 * half + v / W]
                                     : block[v / 2][2 * half + v % 2];
            const int column = 8 * j + 2 * t_ * W;
            const int row = top_ + S::RowsA::of_a(i, 8 * half + g_);
            if constexpr (S::STAGED) {
                constexpr int V = VC < 2 * W ? VC : 2 * W;
                constexpr int PIECE = 2 * W < 4 ? 2 * W : 4;
                alignas(16) float finished[2 * W] = {};
#pragma unroll
                for (int v = 0; v < 2 * W; v += V) {
                    const int c = left() + column + v;
                    if (row < args_.m && c < columns()) {
                        if constexpr (S::FP8_RESULT)
                            scaling_.template finish_vector<V, S::EPILOGUE>(
                                finished + v, values + v, args_.alpha, args_.bias, c);
                        else
                            finish_vector<V, S::EPILOGUE>(
                                finished + v, target_ + row * args_.ldc + c, values + v,
                                args_.alpha, args_.beta, args_.bias, c, residual_at(row, c));
                    }
                }
                Result* const to = strip_ + (8 * half + g_) * PITCH + column;
#pragma unroll
                for (int v = 0; v < 2 * W; v += PIECE)
                    store_numbers<PIECE>(to + v, finished + v);
            } else if constexpr (S::TRANSPOSED) {
#pragma unroll
                for (int v = 0; v < 2 * W; ++v)
                    if (row < args_.m && left() + column + v < columns())
                        update_vector<1>(target_ + (left() + column + v) * args_.ldc + row,
                                         values + v, row, residual_at(left() + column + v, row));
            } else {
                constexpr int V = VC < 2 * W ? VC : 2 * W;
#pragma unroll
                for (int v = 0; v < 2 * W; v += V)
                    if (row < args_.m && left() + column + v < columns())
                        update_vector<V>(target_ + row * args_.ldc + left() + column + v,
                                         values + v, left() + column + v,
                                         residual_at(row, left() + column + v));
            }
        }
    }

    // V elements of C, from their sums.
    template <int V>
    __device__ __forceinline__ void update_vector(Result* to, const float* sums, int column,
                                                  const Result* residual) const {
        if constexpr (S::FP8_RESULT)
            scaling_.template update<V, S::EPILOGUE>(to, sums, args_.alpha, args_.bias, column);
        else
            update<V, S::EPILOGUE>(to, sums, args_.alpha, args_.beta, args_.bias, column, residual);
    }

    __device__ __forceinline__ float scaled(float value) const {
        if constexpr (S::FP8_RESULT)
            return scaling_.apply(value);
        else
            return value;
    }

    // The sums of blocks times the scales of their rows and columns, if these have their own.
    __device__ __forceinline__ void store_scaled(int i, int j,
                                                 const typename S::Sum (*block)[4]) const {
        constexpr bool ROWS = S::SCALE == Scale::ROW;
        const float *rows = nullptr, *columns = nullptr;
        if constexpr (ROWS) {
            rows = (S::TRANSPOSED ? args_.scale_b : args_.scale_a) + blockIdx.z * 1LL * args_.m;
            columns = (S::TRANSPOSED ? args_.scale_a : args_.scale_b) + blockIdx.z * 1LL * args_.n;
        }
        float scaled[BLOCKS][4];
#pragma unroll
        for (int e = 0; e < 4 * BLOCKS; ++e) {
            float factor = scale_;
            if constexpr (ROWS)
                factor = __ldg(rows + min(row_of(i, e % 4 / 2), args_.m - 1)) *
                         __ldg(columns + min(column_of(j + e / 4, e % 2), args_.n - 1));
            if (args_.alpha == 0.0f) factor = 0.0f;  // whatever the scales are
            scaled[e / 4][e % 4] = static_cast<float>(block[e / 4][e % 4]) * factor;
        }
        store_finished(i, j, scaled);
    }

    // int32 sums as they are.
    __device__ __forceinline__ void store_sums(int i, int j, const int (&block)[4]) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = row_of(i, half), column = column_of(j, 0);
            const int *values = block + 2 * half;
            if (row >= args_.m) continue;
            if constexpr (S::TRANSPOSED) {
                int* const to = target_ + column * args_.ldc + row;
                if (column < args_.n) to[0] = values[0];
                if (column + 1 < args_.n) to[args_.ldc] = values[1];
            } else if constexpr (VC >= 2) {
                if (column < args_.n)
                    *reinterpret_cast<int2*>(target_ + row * args_.ldc + column) =
                        make_int2(values[0], values[1]);
            } else {
                int* const to = target_ + row * args_.ldc + column;
                if (column < args_.n) to[0] = values[0];
                if (column + 1 < args_.n) to[1] = values[1];
            }
        }
    }

    // An element of the residual; null without one.
    __device__ __forceinline__ const Result* residual_at(int row, int column) const {
        return RESIDUAL ? residual_ + row * args_.ldr + column : nullptr;
    }
    // Columns of what is stored, and the first of the warp's.
    __device__ __forceinline__ int columns() const { return HALF_WIDE ? args_.n / 2 : args_.n; }
    __device__ __forceinline__ int left() const { return HALF_WIDE ? left_ / 2 : left_; }
    __device__ __forceinline__ int row_of(int i, int half) const {
        return top_ + S::RowsA::of_a(i, 8 * half + g_);
    }
    __device__ __forceinline__ int column_of(int j, int e) const {
        return left_ + 8 * j + 2 * t_ + e;
    }

public:
    // The rows of C that blocks (i, ...) of all lanes make.
    __device__ __forceinline__ void store_rows(int i) const {
        if constexpr (!S::STAGED) return;
        __syncwarp();
#pragma unroll 2
        for (int vector = lane_; vector < 16 * WIDTH / VC; vector += 32) {
            const int in_strip = vector / (WIDTH / VC), column = vector % (WIDTH / VC) * VC;
            const int row = top_ + S::RowsA::of_a(i, in_strip);
            if (row >= args_.m || left() + column >= columns()) continue;
            using Unit = typename Bytes<VC * sizeof(Result)>::Type;
            *reinterpret_cast<Unit*>(target_ + row * args_.ldc + left() + column) =
                *reinterpret_cast<const Unit*>(strip_ + in_strip * PITCH + column);
        }
        __syncwarp();
    }

    // Raises `amax` to what has been stored.
    __device__ __forceinline__ void raise_amax() const { scaling_.raise(args_.amax); }

private:
    const Args& args_;
    Result* const strip_;
    const int lane_, g_, t_;  // lane 4 g + t
    const int top_, left_;
    Result* const target_;
    const Result* const residual_;
    const float scale_;
    mutable typename S::Scaling scaling_;
};
