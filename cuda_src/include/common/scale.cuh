// Scales of 8-bit operands: fp32 numbers that turn what is stored into what is meant.
#pragma once

// One for each operand; one for each row of op(A) and each column of op(B); or one for each 1 x 128
// of op(A), stored with neighbouring rows side by side, and for each 128 x 128 of op(B), stored
// with neighbouring blocks of K side by side. As `SCALES` in autotune/problem/fields.py. A test
// compares them.
enum class Scale { NONE, TENSOR, ROW, BLOCK };

constexpr int SCALE_BLOCK = 128;
