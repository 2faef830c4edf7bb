// The part of cuBLASLt that scripts/measure/cublaslt.py calls, on host memory. Declared as in cublasLt.h of
// CUDA 13. Its heuristic gives four results: the second is marked as unusable, and the third is
// refused when it is launched.
#include <cstddef>
#include <cstdint>
#include <cstring>

struct Algorithm {
    uint64_t data[8];
};

struct Result {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

struct Product {
    int compute, scale, transposes[2];
};

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t leading_dimension;
};

struct Preference {
    size_t workspace;
};

constexpr int SUCCESS = 0, INVALID = 7, F32 = 0, F16 = 2, BF16 = 14, MARK = 0x5eed;
constexpr int COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77;

// Of 16 bits, only bfloat16: the upper half of an fp32.
static float loaded(const Layout& layout, const void* matrix, uint64_t place) {
    if (layout.type == F32) return static_cast<const float*>(matrix)[place];
    const uint32_t word = uint32_t(static_cast<const uint16_t*>(matrix)[place]) << 16;
    float value;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

static void store(const Layout& layout, void* matrix, uint64_t place, float value) {
    if (layout.type == F32) {
        static_cast<float*>(matrix)[place] = value;
        return;
    }
    uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    static_cast<uint16_t*>(matrix)[place] = uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

// fp32 to tf32: 10 bits of mantissa, halves away from zero.
static float rounded(float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    word = (word + 0x1000) & 0xffffe000;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

static float element(const Product& product, const Layout& layout, const void* matrix,
                     bool transposed, uint64_t row, uint64_t column) {
    const uint64_t i = transposed ? column : row, j = transposed ? row : column;
    const float value = loaded(layout, matrix, i + j * layout.leading_dimension);  // column-major
    return product.compute == COMPUTE_32F_FAST_TF32 ? rounded(value) : value;
}

static bool fits(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
    const bool ta = product.transposes[0], tb = product.transposes[1];
    const bool tf32 = product.compute == COMPUTE_32F_FAST_TF32;
    if (a.type != b.type || (d.type != a.type && d.type != F32) || (tf32 && a.type != F32))
        return false;
    return (ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns &&
           (ta ? a.rows : a.columns) == (tb ? b.columns : b.rows) &&
           a.leading_dimension >= int64_t(a.rows) && b.leading_dimension >= int64_t(b.rows) &&
           d.leading_dimension >= int64_t(d.rows);
}

extern "C" {

int cublasLtCreate(void** handle) {
    *handle = new int(MARK);
    return SUCCESS;
}

int cublasLtMatmulDescCreate(Product** product, int compute, int scale) {
    *product = new Product{compute, scale, {0, 0}};
    const bool known = compute == COMPUTE_32F || compute == COMPUTE_32F_FAST_TF32;
    return known && scale == F32 ? SUCCESS : INVALID;
}

int cublasLtMatmulDescSetAttribute(Product* product, int attribute, const void* value,
                                   size_t size) {
    if (attribute < 3 || attribute > 4 || size != sizeof(int)) return INVALID;
    std::memcpy(&product->transposes[attribute - 3], value, size);
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns,
                               int64_t leading_dimension) {
    *layout = new Layout{type, rows, columns, leading_dimension};
    return type == F32 || type == F16 || type == BF16 ? SUCCESS : INVALID;
}

int cublasLtMatmulPreferenceCreate(Preference** preference) {
    *preference = new Preference{0};
    return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value,
                                         size_t size) {
    if (attribute != 1 || size != sizeof(size_t)) return INVALID;
    std::memcpy(&preference->workspace, value, size);
    return SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(const int* handle, const Product* product, const Layout* a,
                                   const Layout* b, const Layout* c, const Layout* d,
                                   const Preference* preference, int asked, Result* results,
                                   int* returned) {
    if (*handle != MARK || c != d || asked < 4 || !fits(*product, *a, *b, *d)) return INVALID;
    for (int i = 0; i < 4; ++i) {
        results[i] = Result{{{}}, preference->workspace, i == 1 ? INVALID : SUCCESS, 1.0f, {}};
        results[i].algorithm.data[7] = MARK + i;
    }
    *returned = 4;
    return SUCCESS;
}

int cublasLtMatmul(const int* handle, const Product* product, const float* alpha, const void* a,
                   const Layout* la, const void* b, const Layout* lb, const float* beta,
                   const void* c, const Layout* lc, void* d, const Layout* ld,
                   const Algorithm* algorithm, void* workspace, size_t size, void* stream) {
    const uint64_t rank = algorithm->data[7] - MARK;
    if (*handle != MARK || (rank != 0 && rank != 3) || stream != reinterpret_cast<void*>(MARK) ||
        *beta != 0 || lc != ld || la->type == F16)
        return INVALID;
    std::memset(workspace, 0, size);
    const bool ta = product->transposes[0], tb = product->transposes[1];
    const uint64_t depth = ta ? la->rows : la->columns;
    for (uint64_t j = 0; j < ld->columns; ++j)
        for (uint64_t i = 0; i < ld->rows; ++i) {
            float sum = 0;
            for (uint64_t l = 0; l < depth; ++l)
                sum += element(*product, *la, a, ta, i, l) * element(*product, *lb, b, tb, l, j);
            store(*ld, d, i + j * ld->leading_dimension, *alpha * sum);
        }
    (void)c;
    return SUCCESS;
}
}
