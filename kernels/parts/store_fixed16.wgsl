// Encode and store activations. Needs fixed16.wgsl. Expects WORKGROUP (>= 8), a `var<workgroup> values: array<f32, ...>`
// with the values to store, and the storage binding `fixed: array<u32>`.

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

        let encoded = encode_four(x, thread);
        if (stored) {
            let plane = lane / 4u;  // the first or the second half of the block
            let word = 4u * (first_block + block) + lane % 4u;
            let row = token * 5u;
            fixed[(row + plane) * row_blocks * 4u + word] = encoded.high;
            fixed[(row + 2u + plane) * row_blocks * 4u + word] = encoded.low;
            if (lane < 4u) {
                let described = bitcast<vec4<u32>>(vec4<f32>(encoded.scale, encoded.sums, 0.0));
                fixed[(row + 4u) * row_blocks * 4u + word] = described[lane];
            }
        }
    }
}
