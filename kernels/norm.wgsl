// RMSNorm of each token's row, encoded for the linear layers that read it. One workgroup a token.
// Expects COLS, EPS, OUTPUTS_ONLY (begin at the first token whose logits are wanted), WORKGROUP (a multiple of 32), and
// an emit_*.wgsl.

@group(0) @binding(auto) var<storage, read> step: array<u32>;
@group(0) @binding(auto) var<storage, read> x: array<f32>;              // [T, COLS]
@group(0) @binding(auto) var<storage, read> weight: array<f32>;         // [COLS]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let token = group.x;
    let source = token + select(0u, step[1], OUTPUTS_ONLY);

    var squares = 0.0;
    for (var i = thread; i < COLS; i += WORKGROUP) {
        let value = x[source * COLS + i];
        squares += value * value;
    }
    let scale = 1.0 / sqrt(workgroup_sum(squares, thread) / f32(COLS) + EPS);

    for (var first = 0u; first < COLS; first += WORKGROUP) {
        let i = first + thread;
        workgroupBarrier();
        values[thread] = 0.0;
        if (i < COLS) {
            values[thread] = x[source * COLS + i] * scale * weight[i];
        }
        workgroupBarrier();
        emit(0u, min(WORKGROUP, COLS - first), token, first, thread);
    }
}
