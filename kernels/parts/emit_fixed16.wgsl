// Encode values[first_value ..] in 16-bit fixed point, columns first_col .. of a token's row. Whole blocks of 32.
// Expects COLS_OUT and fixed16.wgsl.

@group(0) @binding(auto) var<storage, read_write> fixed: array<u32>;    // [T, 5 planes, COLS_OUT / 32, 4]

fn emit(first_value: u32, count: u32, token: u32, first_col: u32, thread: u32) {
    store_fixed16(first_value, count / 32u, token, first_col / 32u, COLS_OUT / 32u, thread);
}
