fn load_block(b: u32) -> Block {
    let nibbles = codes[b];
    let d = unpack2x16float(scales[b >> 1u] >> (16u * (b & 1u))).x * 0.0625;  // a code is 16 * (q - 8)
    return Block((nibbles << vec4(4u)) & vec4(0xf0f0f0f0u), nibbles & vec4(0xf0f0f0f0u), vec2(d), vec2(0.0));
}
