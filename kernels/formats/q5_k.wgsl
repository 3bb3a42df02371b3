fn load_block(b: u32) -> Block {
    let nibbles = codes[b];
    let fifth = vec4(high[b]);  // bit j of its byte k belongs to value 4j+k
    let packed = scales[b >> 3u];  // of 8 sub-blocks: x, y low bits of scales, mins; z high bits of both; w d and dmin
    let part = packed.xyz >> vec3(4u * (b & 7u));
    let scale_min = vec2<f32>((part.xy & vec2(15u)) | vec2((part.z & 3u) << 4u, (part.z & 12u) << 2u));
    let d_m = unpack2x16float(packed.w) * scale_min;
    return Block(
        (nibbles & vec4(0x0f0f0f0fu)) | ((fifth << vec4(4u, 3u, 2u, 1u)) & vec4(0x10101010u)),
        ((nibbles >> vec4(4u)) & vec4(0x0f0f0f0fu)) | ((fifth >> vec4(0u, 1u, 2u, 3u)) & vec4(0x10101010u)),
        d_m.xx,
        -d_m.yy,
    );
}
