fn load_block(b: u32) -> Block {
    let d = unpack2x16float(scales[b >> 1u] >> (16u * (b & 1u))).x;
    return Block(codes[2u * b], codes[2u * b + 1u], vec2(d), vec2(0.0));
}
