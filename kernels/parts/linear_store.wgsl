// What a linear layer does with its sums: out[t, OUT_AT + row] = sum + bias, in rows of OUT_WIDTH; with ADDS, +=.
// Expects OUT_WIDTH, OUT_AT, ADDS, COUNT_AT (the word of `step` that counts the tokens) and a bias_*.wgsl.

@group(0) @binding(auto) var<storage, read> step: array<u32>;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;      // [T, OUT_WIDTH]

fn prepare(group_row: u32, thread: u32) -> vec2<f32> {
    return vec2<f32>();
}

fn finish(group_row: u32, first_token: u32, early: vec2<f32>, thread: u32) {
    for (var i = thread; i < TILE * GROUP_ROWS; i += WORKGROUP) {
        let token = first_token + i / GROUP_ROWS;
        let row = group_row + i % GROUP_ROWS;
        if (row < N_ROWS && token < step[COUNT_AT]) {
            let at = token * OUT_WIDTH + OUT_AT + row;
            var y = values[i] + bias_of(row);
            if (ADDS) {
                y += out[at];
            }
            out[at] = y;
        }
    }
}
