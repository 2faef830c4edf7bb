// One step of a 2-D stencil: each point inside the border becomes the weighted mean of itself and
// its neighbours. The border stays as it is.
//
// A block computes (BX COLUMNS) x (BY ROWS) points with BX x BY threads; each thread computes
// COLUMNS x ROWS of them. Shared memory holds these points and a halo one point wide:
//
//     . . . . . . . .      .: halo, o: points of the block
//     . o o o o o o .      POINTS = 5: the four adjacent points count `weight` each
//     . o o o o o o .      POINTS = 9: the four diagonal ones too
//     . . . . . . . .
//
// Constraints: POINTS is 5 or 9.

template <int POINTS, int BX, int BY, int COLUMNS, int ROWS>
__global__ void __launch_bounds__(BX * BY)
stencil(const float* __restrict__ in, float* __restrict__ out, int height, int width,
        float weight) {
    static_assert(POINTS == 5 || POINTS == 9, "POINTS is 5 or 9");
    extern __shared__ float tile[];
    constexpr int TILE_WIDTH = BX * COLUMNS, TILE_HEIGHT = BY * ROWS, PITCH = TILE_WIDTH + 2;
    const int left = blockIdx.x * TILE_WIDTH - 1, top = blockIdx.y * TILE_HEIGHT - 1;
    for (int i = threadIdx.y * BX + threadIdx.x; i < PITCH * (TILE_HEIGHT + 2); i += BX * BY) {
        const int x = left + i % PITCH, y = top + i / PITCH;
        const bool inside = x >= 0 && x < width && y >= 0 && y < height;
        tile[i] = inside ? in[(long long)y * width + x] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
#pragma unroll
        for (int column = 0; column < COLUMNS; ++column) {
            const int i = column * BX + threadIdx.x + 1, j = row * BY + threadIdx.y + 1;
            const int x = left + i, y = top + j;
            if (x >= width || y >= height) continue;
            const float* at = tile + j * PITCH + i;
            float value = at[0];
            if (x > 0 && x < width - 1 && y > 0 && y < height - 1) {
                float sum = at[-1] + at[1] + at[-PITCH] + at[PITCH];
                if (POINTS == 9)
                    sum += at[-PITCH - 1] + at[-PITCH + 1] + at[PITCH - 1] + at[PITCH + 1];
                value += weight * (sum - (POINTS - 1) * value);
            }
            out[(long long)y * width + x] = value;
        }
    }
}
