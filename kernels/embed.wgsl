// x[t] = table[token t] * SCALE: each thread dequantises four values of one row.
// Expects COLS, STEPS, STEP (values a block), ROW_AT and N_ROWS (the piece of the table bound here), SCALE, WORKGROUP,
// and the weight format's load_block and block_values.

@group(0) @binding(auto) var<storage, read> step: array<u32>;
@group(0) @binding(auto) var<storage, read_write> x: array<f32>;        // [T, COLS]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let token = group.y;
    let id = step[16u + 2u * token];
    let four = group.x * WORKGROUP + thread;
    if (four * 4u >= COLS || id < ROW_AT || id >= ROW_AT + N_ROWS) {
        return;
    }
    let block = load_block((id - ROW_AT) * STEPS + four / (STEP / 4u));
    let values = block_values(block, four % (STEP / 4u)) * SCALE;
    for (var i = 0u; i < min(4u, COLS - four * 4u); i++) {
        x[token * COLS + four * 4u + i] = values[i];
    }
}
