// What a pair of linear layers does with its sums: activation(gate) * up, encoded for the layer that reads it.
// Expects PARTS = 2, COUNT_AT, an activation_*.wgsl and an emit_*.wgsl.

@group(0) @binding(auto) var<storage, read> step: array<u32>;

fn prepare(group_row: u32, thread: u32) -> vec2<f32> {
    return vec2<f32>();
}

fn finish(group_row: u32, first_token: u32, early: vec2<f32>, thread: u32) {
    for (var i = thread; i < TILE * GROUP_ROWS; i += WORKGROUP) {
        values[i] = activation(values[i]) * values[TILE * GROUP_ROWS + i];
    }
    workgroupBarrier();
    for (var t = 0u; t < TILE; t++) {
        if (first_token + t < step[COUNT_AT]) {
            emit(t * GROUP_ROWS, min(GROUP_ROWS, N_ROWS - group_row), first_token + t, group_row, thread);
        }
    }
}
