fn load_block(b: u32) -> Block {
    let pairs = weights[b];
    return Block(
        vec4(unpack2x16float(pairs.x), unpack2x16float(pairs.y)),
        vec4(unpack2x16float(pairs.z), unpack2x16float(pairs.w)),
    );
}
