// The first half of an RMSNorm, where its input is made: encode x * weight, and leave the sum of this workgroup's x^2.
// scale_rms.wgsl in the next linear layer does the rest. Needs an emit_*.wgsl and a reduce_*.wgsl.

@group(0) @binding(auto) var<storage, read> norm_weight: array<f32>;            // [n]
@group(0) @binding(auto) var<storage, read_write> new_squares: array<f32>;      // [workgroups]

// `count` values, x in values[0 ..], columns first_col .. of the only token. count <= WORKGROUP. For all threads.
fn emit_normed(count: u32, group: u32, first_col: u32, thread: u32) {
    var x = 0.0;
    if (thread < count) {
        x = values[thread];
        values[thread] = x * norm_weight[first_col + thread];
    }
    let sum = workgroup_sum(x * x, thread);
    if (thread == 0u) {
        new_squares[group] = sum;
    }
    workgroupBarrier();
    emit(0u, count, 0u, first_col, thread);
}
