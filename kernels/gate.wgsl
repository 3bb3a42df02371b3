// activation(gate) * up, where gate and up come from two dispatches. One workgroup a token.
// Expects COLS, WORKGROUP (a multiple of 32), an activation_*.wgsl and an emit_*.wgsl.

@group(0) @binding(auto) var<storage, read> gate: array<f32>;           // [T, COLS]
@group(0) @binding(auto) var<storage, read> up: array<f32>;             // [T, COLS]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let token = group.x;
    for (var first = 0u; first < COLS; first += WORKGROUP) {
        let i = token * COLS + first + thread;
        workgroupBarrier();
        values[thread] = 0.0;
        if (first + thread < COLS) {
            values[thread] = activation(gate[i]) * up[i];
        }
        workgroupBarrier();
        emit(0u, min(WORKGROUP, COLS - first), token, first, thread);
    }
}
