// Per-head QK-norm in front of rope.wgsl's rotation: RMS over HEAD_DIM. Expects EPS; needs a reduce_*.wgsl.

@group(0) @binding(auto) var<storage, read> q_norm: array<f32>;         // [HEAD_DIM]
@group(0) @binding(auto) var<storage, read> k_norm: array<f32>;

fn normalise_row(is_query: bool, thread: u32) {
    var squares = 0.0;
    for (var i = thread; i < HEAD_DIM; i += WORKGROUP) {
        squares += row[i] * row[i];
    }
    let scale = inverseSqrt(workgroup_sum(squares, thread) / f32(HEAD_DIM) + EPS);
    for (var i = thread; i < HEAD_DIM; i += WORKGROUP) {
        var weight: f32;
        if (is_query) {
            weight = q_norm[i];
        } else {
            weight = k_norm[i];
        }
        row[i] *= scale * weight;
    }
    workgroupBarrier();
}
