fn load_block(b: u32) -> Block {
    let pairs = weights[b];
    let even = bitcast<vec4<f32>>(pairs << vec4(16u));
    let odd = bitcast<vec4<f32>>(pairs & vec4(0xffff0000u));
    return Block(vec4(even.x, odd.x, even.y, odd.y), vec4(even.z, odd.z, even.w, odd.w));
}
