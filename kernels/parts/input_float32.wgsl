// Activations as float32, for float weights. Expects COLS; the last block of a row may be a part of eight values.

@group(0) @binding(auto) var<storage, read> input: array<f32>;          // [T, COLS]

fn load_four(first: u32, present: u32) -> vec4<f32> {
    var four: vec4<f32>;
    for (var i = 0u; i < 4u; i++) {
        if (i < present) {
            four[i] = input[first + i];
        }
    }
    return four;
}

fn stage_input(thread: u32) {}

fn load_activation(token: u32, b: u32) -> Activation {
    let first = token * COLS + b * 8u;
    let present = COLS - b * 8u;
    return Activation(load_four(first, present), load_four(first + 4u, max(present, 4u) - 4u));
}
