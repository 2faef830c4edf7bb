// Copies of boxes by the tensor memory accelerator.
#include "machine.h"

#include <cmath>
#include <cstring>

namespace host {
namespace {

const TensorMapValue& value_of(const void* map) {
    const auto& value = *static_cast<const TensorMapValue*>(map);
    if (reinterpret_cast<uintptr_t>(map) % 64 || value.mark != TensorMapValue::MARK)
        fail("no tensor map at %p", map);
    return value;
}

int bytes_of_box(const TensorMapValue& map) {
    return map.box_columns * map.box_rows * map.element_bytes;
}

// Where a byte of a box lies: 128-byte swizzling exchanges 16-byte pieces by their address.
unsigned char* swizzled(unsigned char* box, int byte, int swizzle) {
    const size_t offset = box + byte - host_shared;
    return host_shared + (swizzle ? offset ^ (offset >> 7 & swizzle / 16 - 1) << 4 : offset);
}

std::shared_ptr<BoxCopy> issue(Block& block, const void* map, const void* shared, void* barrier,
                               int column, int row, int matrix) {
    const TensorMapValue& value = value_of(map);
    auto* const box = static_cast<unsigned char*>(const_cast<void*>(shared));
    if (reinterpret_cast<uintptr_t>(box) % 128)
        fail("a bulk copy's shared memory starts at byte %td, no multiple of 128",
             box - host_shared);
    auto copy = std::make_shared<BoxCopy>(
        BoxCopy{value, box, barrier, column, row, matrix, Block::current->rank, false});
    block.copies.push_back(copy);
    block.wake();
    return copy;
}

void load(Block& block, void* to, const void* map, void* barrier, int column, int row, int matrix) {
    const auto copy = issue(block, map, to, barrier, column, row, matrix);
    complete(block, barrier, 0);  // faults if it is none
    const int bytes = bytes_of_box(copy->map);
    std::memset(block.at(to, bytes), NAN_BYTE, bytes);
}

}  // namespace

float round_to_tf32(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof bits);
    if (std::isfinite(x)) bits = (bits + 0x1000) & 0xffffe000;
    std::memcpy(&x, &bits, sizeof bits);
    return x;
}

void tma_load(void* to, const void* map, void* barrier, int column, int row, int matrix) {
    load(*Block::current, to, map, barrier, column, row, matrix);
}

void tma_load_multicast(void* to, const void* map, void* barrier, int column, int row, int matrix,
                        unsigned blocks) {
    if (blocks == 0) fail("a multicast to no block");
    for (int rank = 0; blocks >> rank; ++rank)
        if (blocks >> rank & 1)
            load(peer(rank, "a multicast to"), to, map, barrier, column, row, matrix);
}

void tma_store(const void* map, const void* from, int column, int row, int matrix) {
    Thread::current->stores.open.push_back(
        issue(*Block::current, map, from, nullptr, column, row, matrix));
}

void tma_store_commit() { Thread::current->stores.commit(); }

void tma_store_wait(int allowed_pending) {
    for (const auto& copy : Thread::current->stores.due(allowed_pending)) copy_box(*copy);
}

void copy_box(BoxCopy& copy) {
    if (copy.done) return;
    copy.done = true;
    const TensorMapValue& map = copy.map;
    const int size = map.element_bytes;
    for (int y = 0; y < map.box_rows; ++y) {
        for (int x = 0; x < map.box_columns; ++x) {
            const long long column = copy.column + x, row = copy.row + y;
            const bool inside = column >= 0 && column < map.columns && row >= 0 &&
                                row < map.rows && copy.matrix >= 0 && copy.matrix < map.batch;
            unsigned char* element =
                map.base + copy.matrix * map.stride + row * map.pitch + column * size;
            unsigned char* place =
                swizzled(copy.shared, (y * map.box_columns + x) * size, map.swizzle);
            if (!copy.barrier) {
                if (inside) std::memcpy(element, place, size);
                continue;
            }
            float value = 0.0f;
            if (inside) std::memcpy(&value, element, size);
            if (map.to_tf32) value = round_to_tf32(value);
            std::memcpy(place, &value, size);
        }
    }
    if (copy.barrier) complete(*Block::current, copy.barrier, bytes_of_box(map));
}

}  // namespace host
