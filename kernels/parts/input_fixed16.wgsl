// Activations in 16-bit fixed point, as fixed16.wgsl stores them. Expects STEPS (blocks a row).

@group(0) @binding(auto) var<storage, read> input: array<vec4<u32>>;    // [T, 5 planes, STEPS]

fn stage_input(thread: u32) {}

fn load_activation(token: u32, b: u32) -> Activation {
    let at = token * 5u * STEPS + b;
    let numbers = bitcast<vec4<f32>>(input[at + 4u * STEPS]);
    return Activation(
        input[at], input[at + STEPS], input[at + 2u * STEPS], input[at + 3u * STEPS], numbers.x, numbers.y, numbers.z);
}
