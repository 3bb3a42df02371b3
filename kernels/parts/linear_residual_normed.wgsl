// linear_store.wgsl with ADDS for one token, and the first half of the RMSNorm that follows.
// Expects OUT_AT and a bias_*.wgsl; needs emit_normed.wgsl.

@group(0) @binding(auto) var<storage, read_write> out: array<f32>;      // [N_ROWS], the residual stream

// The residual stream so far, and the norm's weight.
fn prepare(group_row: u32, thread: u32) -> vec2<f32> {
    let row = min(group_row + thread, N_ROWS - 1u);
    return vec2<f32>(out[row] + bias_of(row), norm_weight[row]);
}

fn finish(group_row: u32, first_token: u32, early: vec2<f32>, thread: u32) {
    let count = min(GROUP_ROWS, N_ROWS - group_row);
    var x = 0.0;
    if (thread < count) {
        x = early.x + values[thread];
        out[group_row + thread] = x;
    }
    emit_normed(x, early.y, count, group_row / GROUP_ROWS, group_row, thread);
}
