// Activations that come as float32, encoded into shared memory first: pays where many teams read one token.
// Expects STEPS, WORKGROUP (>= 8); needs fixed16.wgsl.

@group(0) @binding(auto) var<storage, read> input: array<vec4<f32>>;    // [8 STEPS] fours
var<workgroup> staged: array<vec4<u32>, 5u * STEPS>;                    // [5 planes, STEPS]

fn stage_input(thread: u32) {
    let lane = thread % 8u;  // eight threads a block
    for (var first = 0u; first < STEPS; first += WORKGROUP / 8u) {
        let b = first + thread / 8u;
        let encoded = encode_four(input[8u * min(b, STEPS - 1u) + lane], thread);
        if (b < STEPS) {
            let half = lane / 4u * STEPS + b;
            staged[half][lane % 4u] = encoded.high;
            staged[2u * STEPS + half][lane % 4u] = encoded.low;
            if (lane == 0u) {
                staged[4u * STEPS + b] = bitcast<vec4<u32>>(vec4<f32>(encoded.scale, encoded.sums, 0.0));
            }
        }
    }
    workgroupBarrier();
}

fn load_activation(token: u32, b: u32) -> Activation {
    let numbers = bitcast<vec4<f32>>(staged[b + 4u * STEPS]);
    return Activation(
        staged[b], staged[b + STEPS], staged[b + 2u * STEPS], staged[b + 3u * STEPS], numbers.x, numbers.y, numbers.z);
}
