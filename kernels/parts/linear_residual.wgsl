// What a linear layer does with its sums: add them to the residual stream, x[t, OUT_AT + row] += sum + bias.
// Expects OUT_WIDTH, OUT_AT, COUNT_AT (the word of `step` that counts the tokens) and a bias_*.wgsl.

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
            out[token * OUT_WIDTH + OUT_AT + row] += values[i] + bias_of(row);
        }
    }
}
