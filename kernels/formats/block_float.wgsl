// A block of 8 float weights, and its product with 8 activations.

struct Block {
    w0: vec4<f32>,
    w1: vec4<f32>,
}

struct Activation {
    x0: vec4<f32>,
    x1: vec4<f32>,
}

// The values 4i .. 4i+3, i in 0..2.
fn block_values(block: Block, i: u32) -> vec4<f32> {
    return select(block.w1, block.w0, i == 0u);
}

// The sum of the 8 products.
fn block_dot(block: Block, x: Activation) -> f32 {
    return dot(block.w0, x.x0) + dot(block.w1, x.x1);
}
