fn load_block(b: u32) -> Block {
    let nibbles = codes[b];
    let fifth = vec4(high[b]);  // bit j of its byte k belongs to value 4j+k
    let d_m = unpack2x16float(scales[b]);
    return Block(
        (nibbles & vec4(0x0f0f0f0fu)) | ((fifth << vec4(4u, 3u, 2u, 1u)) & vec4(0x10101010u)),
        ((nibbles >> vec4(4u)) & vec4(0x0f0f0f0fu)) | ((fifth >> vec4(0u, 1u, 2u, 3u)) & vec4(0x10101010u)),
        d_m.xx,
        d_m.yy,
    );
}
