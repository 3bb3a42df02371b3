// embed.wgsl for one token, and the first half of the RMSNorm that follows (emit_normed.wgsl).
// Expects what embed.wgsl does, and an emit_*.wgsl. A workgroup makes WORKGROUP columns, a multiple of 32.

@group(0) @binding(auto) var<storage, read> step: array<u32>;
@group(0) @binding(auto) var<storage, read_write> x: array<f32>;        // [COLS]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first_col = group.x * WORKGROUP;
    let col = first_col + thread;
    var value = 0.0;
    var weight = 0.0;
    if (col < COLS) {
        let block = load_block(step[16] * STEPS + col / STEP);
        value = block_values(block, col % STEP / 4u)[col % 4u] * SCALE;
        weight = norm_weight[col];
        x[col] = value;
    }
    emit_normed(value, weight, min(WORKGROUP, COLS - first_col), group.x, first_col, thread);
}
