// The reductions that kernels call, over reduce_subgroup.wgsl or reduce_shared.wgsl (sum_over, max_over).
// All threads of the workgroup must call them together.

// Four sums at once, each over the thread's team: LANES neighbours, the first a multiple of LANES.
fn team_sum(value: vec4<f32>, thread: u32) -> vec4<f32> {
    return sum_over(value, LANES, thread);
}

fn workgroup_sum(value: f32, thread: u32) -> f32 {
    return sum_over(vec4<f32>(value, 0.0, 0.0, 0.0), WORKGROUP, thread).x;
}

fn workgroup_max(value: f32, thread: u32) -> f32 {
    return max_over(value, WORKGROUP, thread);
}

// Over octets: eight neighbours, the first a multiple of eight.
fn octet_sum(value: vec2<f32>, thread: u32) -> vec2<f32> {
    return sum_over(vec4<f32>(value, 0.0, 0.0), 8u, thread).xy;
}

fn octet_max(value: f32, thread: u32) -> f32 {
    return max_over(value, 8u, thread);
}
