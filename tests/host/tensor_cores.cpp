// Products of matrices by a warp (mma) and by a warpgroup (wgmma): what lane holds what, after the
// PTX ISA, "Matrix Fragments" and "Asynchronous Warpgroup Level Matrix Shared Memory Layout".
#include "machine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace host {
namespace {

constexpr int ROWS = 64, LARGEST_N = 256, LARGEST_K = 32;

int bytes_of(int type) { return type == TF32 ? 4 : type == F16 || type == BF16 ? 2 : 1; }

// Times 2^-120 the bits of an e4m3 number are those of a float, or of a denormal one.
float e4m3(unsigned bits) {
    if ((bits & 0x7f) == 0x7f) return NAN;
    const unsigned wide = (bits & 0x80) << 24 | (bits & 0x7f) << 20;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value * 0x1p120f;
}

float number(int type, unsigned bits) {
    float value;
    if (type == S8) return static_cast<signed char>(bits);
    if (type == E4M3) return e4m3(bits);
    if (type == E5M2) return number(F16, bits << 8);
    if (type == F16) {
        const auto half_bits = static_cast<unsigned short>(bits);
        _Float16 half;
        std::memcpy(&half, &half_bits, sizeof half);
        return half;
    }
    // The tensor cores do not look at what tf32 has no place for.
    bits = type == BF16 ? bits << 16 : bits & 0xffffe000;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Element `k` of what a lane holds of row `lane / 4` of a fragment, whose registers are `step`
// apart for each 16 bytes of K that the row has; whose k is not the lane's is not asked for.
float held(int type, const unsigned* registers, int step, int k) {
    const int byte = k * bytes_of(type);
    const unsigned bits = registers[byte / 16 * step] >> byte % 4 * 8;
    return number(type, bytes_of(type) == 1 ? bits & 0xff : bytes_of(type) == 2 ? bits & 0xffff : bits);
}

// The lane of its row or column that holds element `k`.
int holder(int type, int k) { return k * bytes_of(type) % 16 / 4; }

// Adds exact products to sums in fp32, or in int32 that wraps around, in the order of k.
template <typename Sum>
__attribute__((no_sanitize("address", "undefined"), optimize("O3"))) void add_products(
    Sum sums[16][8], const float a[16][LARGEST_K], const float b[LARGEST_K][8], int count) {
    using Whole = std::conditional_t<std::is_same_v<Sum, float>, float, int>;
    for (int row = 0; row < 16; ++row)
        for (int k = 0; k < count; ++k)
            for (int column = 0; column < 8; ++column)
                sums[row][column] += static_cast<Sum>(static_cast<Whole>(a[row][k] * b[k][column]));
}

struct Fragments {
    int type_a, type_b, k;
    unsigned* d;
    const unsigned *a, *b;
};

void multiply_fragments(const std::vector<Thread*>& lanes) {
    const auto of = [&](int lane) -> const Fragments& {
        return *lanes[lane]->brought<Fragments>(Thread::WARP);
    };
    const int type_a = of(0).type_a, type_b = of(0).type_b, count = of(0).k;
    float a[16][LARGEST_K], b[LARGEST_K][8];
    for (int k = 0; k < count; ++k) {
        for (int row = 0; row < 16; ++row)
            a[row][k] = held(type_a, of(row % 8 * 4 + holder(type_a, k)).a + row / 8, 2, k);
        for (int column = 0; column < 8; ++column)
            b[k][column] = held(type_b, of(column * 4 + holder(type_b, k)).b, 1, k);
    }
    unsigned sums[16][8];
    const auto sum_of = [&](int row, int column) -> unsigned& {
        return of(row % 8 * 4 + column / 2).d[row / 8 * 2 + column % 2];
    };
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) sums[row][column] = sum_of(row, column);
    if (type_a == S8) {
        add_products(sums, a, b, count);
    } else {
        float values[16][8];
        std::memcpy(values, sums, sizeof values);
        add_products(values, a, b, count);
        std::memcpy(sums, values, sizeof values);
    }
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) sum_of(row, column) = sums[row][column];
}

struct Rows {
    unsigned* values;
    int count;
    bool transposed, load;
    unsigned char* row;
    unsigned char loaded[16];  // at once, as a meeting of the lanes would excuse a missing barrier
};

void move_rows(const std::vector<Thread*>& lanes) {
    const auto of = [&](int lane) -> const Rows& {
        return *lanes[lane]->brought<Rows>(Thread::WARP);
    };
    const Rows& first = of(0);
    for (int at = 0; at < first.count * 64; ++at) {
        const int matrix = at / 64, row = at / 8 % 8, column = at % 8;
        const Rows& from = of(matrix * 8 + row);
        const unsigned char* loaded = from.loaded + column * 2;
        const int y = first.transposed ? column : row, x = first.transposed ? row : column;
        auto* value = reinterpret_cast<unsigned char*>(of(y * 4 + x / 2).values + matrix) + x % 2 * 2;
        std::memcpy(first.load ? value : from.row + column * 2, first.load ? loaded : value, 2);
    }
}

// A matrix in shared memory as a descriptor tells: PTX ISA, "Matrix Descriptor".
class Operand {
public:
    Operand(unsigned long long descriptor, int type, bool transposed)
        : start_((descriptor & 0x3fff) << 4), leading_((descriptor >> 16 & 0x3fff) << 4),
          stride_((descriptor >> 32 & 0x3fff) << 4), type_(type), transposed_(transposed) {
        if (descriptor >> 62 != 1) fail("a descriptor without 128-byte swizzle: %#llx", descriptor);
        if (descriptor >> 49 & 7) fail("a descriptor with a base offset: %#llx", descriptor);
    }

    // Element `k` of row `x`, if that is how they are called.
    float at(int x, int k) const {
        const int bytes = bytes_of(type_);
        // Rows of 128 bytes of K in eights, or rows of 64 x of one k in eights.
        unsigned address = start_ + (transposed_ ? x / 64 * leading_ + k / 8 * stride_ +
                                                       k % 8 * 128 + x % 64 * bytes
                                                 : x / 8 * stride_ + x % 8 * 128 + k * bytes);
        address ^= (address >> 7 & 7) << 4;
        if (address < 1024 || address - 1024 + bytes > Machine::shared)
            fail("a wgmma reads shared memory at byte %d of %zu", static_cast<int>(address) - 1024,
                 Machine::shared);
        unsigned bits = 0;
        std::memcpy(&bits, host_shared + address - 1024, bytes);
        return number(type_, bits);
    }

private:
    unsigned start_, leading_, stride_;
    int type_;
    bool transposed_;
};

// Sums of one warpgroup in order of x and y.
float sums[ROWS][LARGEST_N];

__attribute__((no_sanitize("address", "undefined"), optimize("O3"))) void multiply(
    const Operands& of, int n, int k) {
    for (int x = 0; x < ROWS; ++x)
        for (int step = 0; step < k; ++step)
            for (int y = 0; y < n; ++y) sums[x][y] += of.p[x][step] * of.q[step][y];
}

int depth(const Product& product) { return 32 / bytes_of(product.type_p); }

// Reads what lies in shared memory.
void read_operands(const Product& product) {
    Operands& to = *product.operands;
    if (std::exchange(to.read, true)) return;
    const Operand q(product.q, product.type_q, product.transposed_q);
    for (int k = 0; k < depth(product); ++k)
        for (int y = 0; y < product.n; ++y) to.q[k][y] = q.at(y, k);
    if (product.registers) return;
    const Operand p(product.p, product.type_p, product.transposed_p);
    for (int x = 0; x < ROWS; ++x)
        for (int k = 0; k < depth(product); ++k) to.p[x][k] = p.at(x, k);
}

// Those of the thread's next wgmma.
std::shared_ptr<Operands> next_operands(Thread& thread) {
    auto& own = Block::current->operands[linear_index() / WARPGROUP_SIZE];
    if (own.size() == thread.multiplied) own.push_back(std::make_shared<Operands>());
    return own[thread.multiplied++];
}

Sums& sums_at(Thread* thread, const unsigned* place) {
    return *std::find_if(thread->sums.begin(), thread->sums.end(),
                         [=](const Sums& one) { return one.place == place; });
}

bool alike(const Product& one, const Product& two) {
    return one.n == two.n && one.type_p == two.type_p && one.type_q == two.type_q &&
           one.registers == two.registers &&
           one.transposed_p == two.transposed_p && one.transposed_q == two.transposed_q &&
           one.add == two.add && one.q == two.q && (one.registers || one.p == two.p);
}

// Does a wgmma, of which each of the warpgroup's threads brings its own.
void multiply_tiles(const std::vector<Thread*>& threads, const std::vector<Product*>& products) {
    const Product& first = *products[0];
    for (const Product* product : products)
        if (!alike(*product, first)) fail("the threads of a warpgroup differ in a wgmma");
    read_operands(first);
    for (int x = 0; first.registers && x < ROWS; ++x) {
        for (int k = 0; k < depth(first); ++k) {
            const size_t thread = x / 16 * WARP_SIZE + x % 8 * 4 + holder(first.type_p, k);
            first.operands->p[x][k] =
                held(first.type_p, products[thread]->fragment + x / 8 % 2, 2, k);
        }
    }
    const auto each_sum = [&](const auto& act) {
        for (size_t t = 0; t < threads.size(); ++t) {
            Sums& own = sums_at(threads[t], products[t]->sums);
            const int row = t / WARP_SIZE * 16 + t % WARP_SIZE / 4, column = t % 4 * 2;
            for (int i = 0; i < first.n / 2; ++i)
                act(own.values[i], sums[row + i / 2 % 2 * 8][column + i / 4 * 8 + i % 2]);
        }
    };
    // Of a sum in int32 what one wgmma adds is exact in fp32.
    const bool integers = first.type_p == S8;
    each_sum([&](unsigned& own, float& sum) {
        if (!first.add) own = 0;
        if (integers) sum = 0.0f;
        else std::memcpy(&sum, &own, sizeof sum);
    });
    multiply(*first.operands, first.n, depth(first));
    each_sum([&](unsigned& own, float sum) {
        if (integers) own += static_cast<unsigned>(static_cast<int>(sum));  // it wraps around
        else std::memcpy(&own, &sum, sizeof own);
    });
    for (size_t t = 0; t < threads.size(); ++t) {
        Sums& own = sums_at(threads[t], products[t]->sums);
        if (--own.pending) continue;
        std::copy(own.values.begin(), own.values.end(), own.place);
        own.left = own.values;
    }
}

// Does the products that all threads of a warpgroup have come to wait for.
void finish_products(const std::vector<Thread*>& threads) {
    std::vector<std::vector<Product>> due;
    for (Thread* thread : threads) {
        const auto pending = *thread->brought<int>(Thread::WARPGROUP);
        due.push_back(thread->products.due(pending));
        if (due.back().size() != due[0].size())
            fail("the threads of a warpgroup wait for different wgmmas");
        thread->fenced = thread->fenced && due.back().empty();
    }
    for (size_t i = 0; i < due[0].size(); ++i) {
        std::vector<Product*> products;
        for (auto& own : due) products.push_back(&own[i]);
        multiply_tiles(threads, products);
    }
}

}  // namespace

void mma(int type_a, int type_b, int k, void* d, const unsigned* a, const unsigned* b, At at) {
    Fragments own{type_a, type_b, k, static_cast<unsigned*>(d), a, b};
    Thread::current->wait(Thread::WARP, reinterpret_cast<uintptr_t>(&own), at.file, at.line,
                          multiply_fragments);
}

void move_matrices(unsigned* values, int count, bool transposed, bool load, void* row, At at) {
    Rows rows{values, count, transposed, load, static_cast<unsigned char*>(row), {}};
    if (own_lane() < count * 8) {  // further lanes bring addresses that nobody looks at
        if (reinterpret_cast<uintptr_t>(row) % 16)
            fail("a row of a matrix at byte %td, no multiple of 16", rows.row - host_shared);
        if (load) std::memcpy(rows.loaded, row, sizeof rows.loaded);
    }
    Thread::current->wait(Thread::WARP, reinterpret_cast<uintptr_t>(&rows), at.file, at.line,
                          move_rows);
}

void wgmma(int n, int type_p, int type_q, void* sums, const unsigned* fragment,
           unsigned long long p, unsigned long long q, bool transposed_p, bool transposed_q,
           bool add) {
    auto* const d = static_cast<unsigned*>(sums);
    if (n % 8 || n < 8 || n > LARGEST_N || (type_p == S8 && n > 32 && n % 16))
        fail("a wgmma of n = %d", n);
    if (bytes_of(type_p) != 2 && (transposed_p || transposed_q))
        fail("only operands of 16 bits run across K");
    Thread& self = *Thread::current;
    auto own = std::find_if(self.sums.begin(), self.sums.end(),
                            [=](const Sums& one) { return one.place == d; });
    if (own == self.sums.end()) own = self.sums.insert(own, {d, 0, {}, {}});
    if (own->pending == 0) {
        own->values.assign(d, d + n / 2);
        const bool known = own->left.size() == own->values.size() &&
                           !std::memcmp(own->left.data(), d, n / 2 * sizeof *d);
        if (add && !known && !self.fenced) fail("a wgmma adds to sums written without a fence");
        std::memset(d, NAN_BYTE, n / 2 * sizeof *d);
    }
    ++own->pending;
    Product product{n, type_p, type_q, fragment != nullptr, transposed_p, transposed_q,
                    add, d, {}, p, q, {}};
    if (fragment) std::copy(fragment, fragment + 4, product.fragment);
    // Some read when the first thread comes, others when all wait: too early, or too late, for who
    // does not wait for what is written, or does not wait before it writes.
    const bool early = __builtin_parityll(self.multiplied);  // in step with no loop
    product.operands = next_operands(self);
    if (early) read_operands(product);
    self.products.open.push_back(product);
}

void wgmma_fence() { Thread::current->fenced = true; }

void wgmma_commit() { Thread::current->products.commit(); }

void wgmma_wait(int allowed_pending, At at) {
    Thread::current->wait(Thread::WARPGROUP, reinterpret_cast<uintptr_t>(&allowed_pending), at.file,
                          at.line, finish_products);
}

}  // namespace host
