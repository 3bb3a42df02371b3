// Write values[first_value ..] as float32, columns first_col .. of a token's row. Expects COLS_OUT.

@group(0) @binding(auto) var<storage, read_write> encoded: array<f32>;  // [T, COLS_OUT]

fn emit(first_value: u32, count: u32, token: u32, first_col: u32, thread: u32) {
    for (var i = thread; i < count; i += WORKGROUP) {
        encoded[token * COLS_OUT + first_col + i] = values[first_value + i];
    }
}
