// A block of 32 quantised weights, and its product with 32 activations in 16-bit fixed point.
// The including shader declares `const SCALES: u32`: 1 if the whole block shares d and m, 2 if each half has its own.

struct Block {         // value i = d * code_i + m; component h of d and m serves values 16h .. 16h+15
    c0: vec4<u32>,     // codes of values 0..15, int8: value 4w+k in byte k of word w
    c1: vec4<u32>,     // codes of values 16..31
    d: vec2<f32>,
    m: vec2<f32>,
}

struct Activation {    // x_i = scale * (256 * high_i + low_i), high and low int8 in the order of Block's codes
    h0: vec4<u32>,
    h1: vec4<u32>,
    l0: vec4<u32>,
    l1: vec4<u32>,
    scale: f32,
    sum0: f32,         // sum of 256 * high_i + low_i over values 0..15
    sum1: f32,         // and over values 16..31
}

// The values 4i .. 4i+3, i in 0..8.
fn block_values(block: Block, i: u32) -> vec4<f32> {
    let second = i >= 4u;
    let word = select(block.c0, block.c1, second)[i & 3u];
    return select(block.d.x, block.d.y, second) * vec4<f32>(unpack4xI8(word)) + select(block.m.x, block.m.y, second);
}

fn dot_half(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y) + dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w);
}

// The sum of value_i * x_i. Its integer part is exact: at most 32 * 128 * 32768 = 2^27 in an i32.
fn block_dot(block: Block, x: Activation) -> f32 {
    let first = 256 * dot_half(block.c0, x.h0) + dot_half(block.c0, x.l0);
    let second = 256 * dot_half(block.c1, x.h1) + dot_half(block.c1, x.l1);
    if SCALES == 1u {
        return x.scale * (block.d.x * f32(first + second) + block.m.x * (x.sum0 + x.sum1));
    }
    return x.scale * (block.d.x * f32(first) + block.d.y * f32(second) + block.m.x * x.sum0 + block.m.y * x.sum1);
}
