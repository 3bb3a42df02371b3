fn load_block(b: u32) -> Block {
    let nibbles = codes[b];
    let fifth = vec4(high[b]);  // bit j of its byte k belongs to value 4j+k
    let d = unpack2x16float(scales[b >> 1u] >> (16u * (b & 1u))).x * 0.125;  // a code is 8 * (q - 16)
    return Block(
        ((nibbles << vec4(3u)) & vec4(0x78787878u)) | ((fifth << vec4(7u, 6u, 5u, 4u)) & vec4(0x80808080u)),
        ((nibbles >> vec4(1u)) & vec4(0x78787878u)) | ((fifth << vec4(3u, 2u, 1u, 0u)) & vec4(0x80808080u)),
        vec2(d),
        vec2(0.0),
    );
}
