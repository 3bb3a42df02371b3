// linear_residual.wgsl for one token, and the first half of the RMSNorm that follows.
// Expects OUT_AT and a bias_*.wgsl; needs emit_normed.wgsl.

@group(0) @binding(auto) var<storage, read_write> out: array<f32>;      // [N_ROWS], the residual stream

fn finish(group_row: u32, first_token: u32, thread: u32) {
    let row = group_row + thread;
    let count = min(GROUP_ROWS, N_ROWS - group_row);
    if (thread < count) {
        let x = out[row] + values[thread] + bias_of(row);
        out[row] = x;
        values[thread] = x;
    }
    workgroupBarrier();
    emit_normed(count, group_row / GROUP_ROWS, group_row, thread);
}
