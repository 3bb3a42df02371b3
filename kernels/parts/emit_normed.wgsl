// The first half of an RMSNorm, where its input is made: encode x * weight, and leave the sum of this workgroup's x^2.
// scale_rms.wgsl in the next linear layer does the rest. Expects EMITTED (a power of two, at least as many as there are
// values). Needs an emit_*.wgsl and a reduce_*.wgsl.

@group(0) @binding(auto) var<storage, read> norm_weight: array<f32>;            // [n]
@group(0) @binding(auto) var<storage, read_write> new_squares: array<f32>;      // [workgroups]

// Thread i < count has value i of the workgroup, and its weight; they are columns first_col .. of the only token.
fn emit_normed(x: f32, weight: f32, count: u32, group: u32, first_col: u32, thread: u32) {
    if (thread < count) {
        values[thread] = x * weight;
    }
    let sum = sum_over(vec4<f32>(x * x, 0.0, 0.0, 0.0), EMITTED, thread).x;
    if (thread == 0u) {
        new_squares[group] = sum;
    }
    workgroupBarrier();
    emit(0u, count, 0u, first_col, thread);
}
