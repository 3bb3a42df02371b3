// Activations in 16-bit fixed point per block of 32 (layout: fixed16.py). Needs a reduce_*.wgsl.
// Expects WORKGROUP (>= 8), a `var<workgroup> values: array<f32, ...>` with the values to store, and the storage
// binding `fixed: array<u32>`.

const FIXED16_LARGEST = 32639.0;  // rounds to high byte 127, low byte 127
const FIXED16_SMALLEST = 1e-30;  // a block below this is stored as zeros: GPUs may flush its scale to zero

// Store the blocks values[first_value ..], `stored_blocks` of them, as blocks first_block .. of the token's row of
// `row_blocks` blocks. Eight threads share a block, four values each. All threads must call it together, after a
// barrier that follows the writing of `values`.
fn store_fixed16(
    first_value: u32, stored_blocks: u32, token: u32, first_block: u32, row_blocks: u32, thread: u32
) {
    let lane = thread % 8u;
    for (var batch = 0u; batch < stored_blocks; batch += WORKGROUP / 8u) {
        let block = batch + thread / 8u;
        let stored = block < stored_blocks;
        var x = vec4<f32>();
        if (stored) {
            let at = first_value + 32u * block + 4u * lane;
            x = vec4<f32>(values[at], values[at + 1u], values[at + 2u], values[at + 3u]);
        }

        let size = abs(x);
        let largest = octet_max(max(max(size.x, size.y), max(size.z, size.w)), thread);
        let is_zero = largest < FIXED16_SMALLEST;
        let scale = select(largest / FIXED16_LARGEST, 0.0, is_zero);
        let inverse = select(FIXED16_LARGEST / largest, 0.0, is_zero);

        let v = vec4<i32>(round(x * inverse));
        let high = (v + 128) >> vec4<u32>(8u);
        let low = v - 256 * high;
        let sum = f32(v.x + v.y + v.z + v.w);
        let sums = octet_sum(select(vec2<f32>(0.0, sum), vec2<f32>(sum, 0.0), lane < 4u), thread);

        if (stored) {
            let plane = lane / 4u;  // the first or the second half of the block
            let word = 4u * (first_block + block) + lane % 4u;
            let row = token * 5u;
            fixed[(row + plane) * row_blocks * 4u + word] = pack4xI8(high);
            fixed[(row + 2u + plane) * row_blocks * 4u + word] = pack4xI8(low);
            if (lane < 4u) {
                let described = vec4<u32>(bitcast<u32>(scale), bitcast<u32>(sums.x), bitcast<u32>(sums.y), 0u);
                fixed[(row + 4u) * row_blocks * 4u + word] = described[lane];
            }
        }
    }
}
