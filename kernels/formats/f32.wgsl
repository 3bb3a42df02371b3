fn load_block(b: u32) -> Block {
    return Block(weights[2u * b], weights[2u * b + 1u]);
}
