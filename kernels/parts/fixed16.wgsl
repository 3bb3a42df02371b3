// Activations in 16-bit fixed point per block of 32 (layout: fixed16.py). Needs a reduce_*.wgsl.

const FIXED16_LARGEST = 32639.0;  // rounds to high byte 127, low byte 127
const FIXED16_SMALLEST = 1e-30;  // a block below this is stored as zeros: GPUs may flush its scale to zero

struct Encoded {
    high: u32,           // of the thread's four values, int8 packed
    low: u32,
    scale: f32,          // of the block
    sums: vec2<f32>,     // of 256 * high + low, over each half of the block
}

// Encode a block that eight neighbouring threads share: four values each. For all threads of the workgroup together.
fn encode_four(x: vec4<f32>, thread: u32) -> Encoded {
    let size = abs(x);
    let largest = octet_max(max(max(size.x, size.y), max(size.z, size.w)), thread);
    let is_zero = largest < FIXED16_SMALLEST;
    let scale = select(largest / FIXED16_LARGEST, 0.0, is_zero);
    let inverse = select(FIXED16_LARGEST / largest, 0.0, is_zero);

    let v = vec4<i32>(round(x * inverse));
    let high = (v + 128) >> vec4<u32>(8u);
    let low = v - 256 * high;
    let sum = f32(v.x + v.y + v.z + v.w);
    let first_half = thread % 8u < 4u;
    let sums = octet_sum(select(vec2<f32>(0.0, sum), vec2<f32>(sum, 0.0), first_half), thread);
    return Encoded(pack4xI8(high), pack4xI8(low), scale, sums);
}
