// out = x + y, where no linear layer has done it. Expects COUNT (values a token), WORKGROUP. Grid: (COUNT / WORKGROUP, T).

@group(0) @binding(auto) var<storage, read> x: array<f32>;              // [T, COUNT]
@group(0) @binding(auto) var<storage, read> y: array<f32>;              // [T, COUNT]
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;      // [T, COUNT]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group.x * WORKGROUP + thread;
    if (i < COUNT) {
        out[group.y * COUNT + i] = x[group.y * COUNT + i] + y[group.y * COUNT + i];
    }
}
