// Encode float32 rows as a linear layer reads them, where no other kernel has done it. One workgroup a token.
// Expects COLS, WORKGROUP (a multiple of 32), and an emit_*.wgsl.

@group(0) @binding(auto) var<storage, read> x: array<f32>;              // [T, COLS]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let token = group.x;
    for (var first = 0u; first < COLS; first += WORKGROUP) {
        let i = first + thread;
        workgroupBarrier();
        values[thread] = 0.0;
        if (i < COLS) {
            values[thread] = x[token * COLS + i];
        }
        workgroupBarrier();
        emit(0u, min(WORKGROUP, COLS - first), token, first, thread);
    }
}
