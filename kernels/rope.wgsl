// Rotate Q and K in place, and append K and V to the cache. One workgroup per (head, token); the contract: rope.py.
// Expects WORKGROUP, N_HEADS, N_KV_HEADS, HEAD_DIM, N_ROT, QKV_WIDTH, K_AT, V_AT, CAPACITY, MSCALE, NEOX, KV_F32,
// and `normalise_row` from rope_norm.wgsl or rope_plain.wgsl.

@group(0) @binding(auto) var<storage, read> step: array<u32>;
@group(0) @binding(auto) var<storage, read> turns: array<vec2<u32>>;    // [N_ROT / 2] (low, high) words
@group(0) @binding(auto) var<storage, read_write> qkv: array<f32>;      // [T, QKV_WIDTH]
@group(0) @binding(auto) var<storage, read_write> k_cache: array<u32>;  // [N_KV_HEADS, CAPACITY, HEAD_DIM] f16 or f32
@group(0) @binding(auto) var<storage, read_write> v_cache: array<u32>;

const RADIANS = 1.4629180792671596e-9;  // 2 pi / 2^32: of one unit of the phase
const F16_LARGEST = 65504.0;

var<workgroup> row: array<f32, HEAD_DIM>;

// The upper 32 bits of a product, from 16-bit pieces: WGSL has no wider multiplication.
fn multiply_high(a: u32, b: u32) -> u32 {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let middle = a_high * b_low + ((a_low * b_low) >> 16u);
    let other = a_low * b_high + (middle & 0xffffu);
    return a_high * b_high + (middle >> 16u) + (other >> 16u);
}

// cos and sin of a phase in 2^-32 turns. Quarter turns are taken off as integers, so that the series see at most
// pi / 4, where these Taylor polynomials err by less than 3e-9 (a driver's own sin may err by 2^-11).
fn cos_sin(phase: u32) -> vec2<f32> {
    let quarter = (phase + 0x20000000u) >> 30u;  // the nearest one
    let angle = f32(bitcast<i32>(phase - (quarter << 30u))) * RADIANS;  // in [-pi / 4, pi / 4]
    let x = angle * angle;
    let s = angle + angle * x * (-1.0 / 6.0 + x * (1.0 / 120.0 + x * (-1.0 / 5040.0 + x * (1.0 / 362880.0))));
    let c = 1.0 + x * (-0.5 + x * (1.0 / 24.0 + x * (-1.0 / 720.0 + x * (1.0 / 40320.0 - x * (1.0 / 3628800.0)))));
    let turned = select(vec2<f32>(c, s), vec2<f32>(-s, c), (quarter & 1u) == 1u);
    return select(turned, -turned, quarter >= 2u);
}

// Rotate the pairs of `row` by position * turns: whole turns fall away in the wrapping integer product.
fn rotate_row(position: u32, thread: u32) {
    for (var pair = thread; pair < N_ROT / 2u; pair += WORKGROUP) {
        let turn = turns[pair];
        let rotation = MSCALE * cos_sin(position * turn.y + multiply_high(position, turn.x));
        let first = select(2u * pair, pair, NEOX);
        let second = select(2u * pair + 1u, pair + N_ROT / 2u, NEOX);
        let a = row[first];
        let b = row[second];
        row[first] = a * rotation.x - b * rotation.y;
        row[second] = a * rotation.y + b * rotation.x;
    }
    workgroupBarrier();
}

// Write `row` to the cache's row (kv head * CAPACITY + position): f16 two a word, clamped to its range, or f32.
fn append(is_value: bool, cache_row: u32, thread: u32) {
    let row_words = select(HEAD_DIM / 2u, HEAD_DIM, KV_F32);
    for (var i = thread; i < row_words; i += WORKGROUP) {
        var word: u32;
        if (KV_F32) {
            word = bitcast<u32>(row[i]);
        } else {
            let pair = vec2<f32>(row[2u * i], row[2u * i + 1u]);
            word = pack2x16float(clamp(pair, vec2<f32>(-F16_LARGEST), vec2<f32>(F16_LARGEST)));
        }
        if (is_value) {
            v_cache[cache_row * row_words + i] = word;
        } else {
            k_cache[cache_row * row_words + i] = word;
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;  // Q heads, then K heads, then V heads
    let token = group.y;
    let position = step[17u + 2u * token];
    let is_query = head < N_HEADS;
    let is_value = head >= N_HEADS + N_KV_HEADS;
    var kv_head = head - N_HEADS;
    var column = K_AT + kv_head * HEAD_DIM;
    if (is_query) {
        column = head * HEAD_DIM;
    } else if (is_value) {
        kv_head -= N_KV_HEADS;
        column = V_AT + kv_head * HEAD_DIM;
    }

    let at = token * QKV_WIDTH + column;
    for (var i = thread; i < HEAD_DIM; i += WORKGROUP) {
        row[i] = qkv[at + i];
    }
    workgroupBarrier();

    if (!is_value) {
        normalise_row(is_query, thread);
        rotate_row(position, thread);
        for (var i = thread; i < HEAD_DIM; i += WORKGROUP) {
            qkv[at + i] = row[i];
        }
    }
    if (!is_query) {
        append(is_value, kv_head * CAPACITY + position, thread);
    }
}
