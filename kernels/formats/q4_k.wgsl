fn load_block(b: u32) -> Block {
    let nibbles = codes[b];
    let packed = scales[b >> 3u];  // of 8 sub-blocks: x, y low bits of scales, mins; z high bits of both; w d and dmin
    let part = packed.xyz >> vec3(4u * (b & 7u));
    let scale_min = vec2<f32>((part.xy & vec2(15u)) | vec2((part.z & 3u) << 4u, (part.z & 12u) << 2u));
    let d_m = unpack2x16float(packed.w) * scale_min;
    return Block(nibbles & vec4(0x0f0f0f0fu), (nibbles >> vec4(4u)) & vec4(0x0f0f0f0fu), d_m.xx, -d_m.yy);
}
