fn load_block(b: u32) -> Block {
    let nibbles = codes[b];
    let d_m = unpack2x16float(scales[b]);
    return Block(nibbles & vec4(0x0f0f0f0fu), (nibbles >> vec4(4u)) & vec4(0x0f0f0f0fu), d_m.xx, d_m.yy);
}
