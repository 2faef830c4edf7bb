// Scales of 8-bit operands: fp32 factors of their elements.
#pragma once

// One for each operand; one for each row of A and column of B; one for each 1 x 128 block of A and
// each 128 x 128 block of B.
enum class Scale { NONE, TENSOR, ROW, BLOCK };

// Sides of a block with a scale of its own, along K and along N.
constexpr int SCALE_BLOCK = 128;
