fn load_block(b: u32) -> Block {
    let nibbles = codes[b];
    let upper = high[b];  // word h, byte k, bits 2j and 2j+1 are of value 16h+4j+k
    let scale = unpack4xI8(scales[b >> 1u] >> (16u * (b & 1u))).xy;
    let d = unpack2x16float(deltas[b >> 4u] >> (2u * (b & 8u))).x * 0.25;  // a code is 4 * (q - 32)
    return Block(
        ((nibbles << vec4(2u)) & vec4(0x3c3c3c3cu)) | ((vec4(upper.x) << vec4(6u, 4u, 2u, 0u)) & vec4(0xc0c0c0c0u)),
        ((nibbles >> vec4(2u)) & vec4(0x3c3c3c3cu)) | ((vec4(upper.y) << vec4(6u, 4u, 2u, 0u)) & vec4(0xc0c0c0c0u)),
        d * vec2<f32>(scale),
        vec2(0.0),
    );
}
