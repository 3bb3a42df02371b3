// input_fixed16.wgsl for one token, copied to shared memory first: pays where many teams read it. Expects STEPS, WORKGROUP.

@group(0) @binding(auto) var<storage, read> input: array<vec4<u32>>;    // [5 planes, STEPS]
var<workgroup> staged: array<vec4<u32>, 5u * STEPS>;

fn stage_input(thread: u32) {
    for (var i = thread; i < 5u * STEPS; i += WORKGROUP) {
        staged[i] = input[i];
    }
    workgroupBarrier();
}

fn load_activation(token: u32, b: u32) -> Activation {
    let numbers = bitcast<vec4<f32>>(staged[b + 4u * STEPS]);
    return Activation(
        staged[b], staged[b + STEPS], staged[b + 2u * STEPS], staged[b + 3u * STEPS], numbers.x, numbers.y, numbers.z);
}
