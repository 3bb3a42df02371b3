// Attention of one query head, one token, one split of the context per workgroup; the contract: attention.py.
// Expects WORKGROUP, LANES, N_HEADS, N_KV_HEADS, HEAD_DIM, QKV_WIDTH, CAPACITY, SCALE, SOFTCAP, WINDOW, SPLIT, KV_F32;
// a reduce_*.wgsl; attention_result.wgsl or attention_partial.wgsl (finish).
//
// Teams of LANES threads read the cache: a lane holds 8 dimensions of the head, and a team takes every n-th position,
// four at a time. A team keeps its own running softmax, so nothing waits for other threads until the context is read.

@group(0) @binding(auto) var<storage, read> step: array<u32>;
@group(0) @binding(auto) var<storage, read> qkv: array<vec4<f32>>;      // [T, QKV_WIDTH / 4]
@group(0) @binding(auto) var<storage, read> k_cache: array<vec4<u32>>;  // [N_KV_HEADS, CAPACITY, HEAD_DIM] f16 or f32
@group(0) @binding(auto) var<storage, read> v_cache: array<vec4<u32>>;

const EIGHTS = HEAD_DIM / 8u;  // a row of the cache in pieces of eight dimensions; LANES past it idle
const TEAMS = WORKGROUP / LANES;
const STRIDE = WORKGROUP + LANES;  // between the rows of `of_teams`: keeps its readers on different memory banks
const LOWEST = -1e30;  // below any score

alias Eight = mat2x4<f32>;  // the values of eight neighbouring dimensions
struct Packed {
    first: vec4<u32>,  // f16: all eight dimensions
    second: vec4<u32>,  // f32: the last four
}

var<workgroup> of_teams: array<f32, 8u * STRIDE>;  // [dimension within eight, STRIDE of (team, lane)]
var<workgroup> values: array<f32, HEAD_DIM>;

fn read_k(eight: u32) -> Packed {
    if (KV_F32) {
        return Packed(k_cache[2u * eight], k_cache[2u * eight + 1u]);
    }
    return Packed(k_cache[eight], vec4<u32>());
}

fn read_v(eight: u32) -> Packed {
    if (KV_F32) {
        return Packed(v_cache[2u * eight], v_cache[2u * eight + 1u]);
    }
    return Packed(v_cache[eight], vec4<u32>());
}

fn unpack(packed: Packed) -> Eight {
    if (KV_F32) {
        return Eight(bitcast<vec4<f32>>(packed.first), bitcast<vec4<f32>>(packed.second));
    }
    let p = packed.first;
    return Eight(
        vec4<f32>(unpack2x16float(p.x), unpack2x16float(p.y)), vec4<f32>(unpack2x16float(p.z), unpack2x16float(p.w))
    );
}

fn product(a: Eight, b: Eight) -> f32 {
    return dot(a[0], b[0]) + dot(a[1], b[1]);
}

// SOFTCAP * tanh(scores / SOFTCAP): a driver's own tanh may overflow.
fn softcap(scores: vec4<f32>) -> vec4<f32> {
    if (SOFTCAP == 0.0) {
        return scores;
    }
    let e = exp(abs(scores) * (-2.0 / max(SOFTCAP, 1e-6)));  // no division by zero even where it is folded away
    return SOFTCAP * sign(scores) * (1.0 - e) / (1.0 + e);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let head = group.x;
    let token = group.y;
    let position = step[17u + 2u * token];

    // The positions begin .. end - 1 are this workgroup's.
    var begin = 0u;
    var end = position + 1u;
    if (WINDOW != 0u && end > WINDOW) {
        begin = end - WINDOW;
    }
    if (SPLIT != 0u) {
        begin = max(begin, group.z * SPLIT);
        end = min(end, (group.z + 1u) * SPLIT);
        if (begin >= end) {
            return;  // attention_combine.wgsl does not read this split either
        }
    }

    let lane = thread % LANES;
    let team = thread / LANES;
    let eight = min(lane, EIGHTS - 1u);
    var query = Eight();
    if (lane < EIGHTS) {
        let at = token * (QKV_WIDTH / 4u) + head * (HEAD_DIM / 4u) + 2u * eight;
        query = SCALE * Eight(qkv[at], qkv[at + 1u]);
    }

    let row = head / (N_HEADS / N_KV_HEADS) * CAPACITY;  // of position 0 in the cache
    var largest = LOWEST;
    var total = 0.0;
    var sum = Eight();
    for (var first = begin; first < end; first += 4u * TEAMS) {
        let at = vec4<u32>(first + team) + TEAMS * vec4<u32>(0u, 1u, 2u, 3u);
        let e = (row + min(at, vec4<u32>(end - 1u))) * EIGHTS + eight;
        let k0 = read_k(e.x);
        let k1 = read_k(e.y);
        let k2 = read_k(e.z);
        let k3 = read_k(e.w);
        let v0 = read_v(e.x);
        let v1 = read_v(e.y);
        let v2 = read_v(e.z);
        let v3 = read_v(e.w);

        let partial = vec4<f32>(
            product(query, unpack(k0)),
            product(query, unpack(k1)),
            product(query, unpack(k2)),
            product(query, unpack(k3)),
        );
        let inside = at < vec4<u32>(end);
        let scores = select(vec4<f32>(LOWEST), softcap(team_sum(partial, thread)), inside);

        let before = largest;
        largest = max(largest, max(max(scores.x, scores.y), max(scores.z, scores.w)));
        let p = select(vec4<f32>(), exp(scores - largest), inside);
        let shrink = exp(before - largest);
        total = total * shrink + p.x + p.y + p.z + p.w;
        sum = sum * shrink + p.x * unpack(v0) + p.y * unpack(v1) + p.z * unpack(v2) + p.w * unpack(v3);
    }

    // Bring the teams to one maximum, and add them up.
    let largest_of_all = workgroup_max(largest, thread);
    let shrink = exp(largest - largest_of_all);
    let total_of_all = workgroup_sum(select(0.0, total * shrink, lane == 0u), thread);
    sum = sum * shrink;
    of_teams[thread] = sum[0].x;
    of_teams[STRIDE + thread] = sum[0].y;
    of_teams[2u * STRIDE + thread] = sum[0].z;
    of_teams[3u * STRIDE + thread] = sum[0].w;
    of_teams[4u * STRIDE + thread] = sum[1].x;
    of_teams[5u * STRIDE + thread] = sum[1].y;
    of_teams[6u * STRIDE + thread] = sum[1].z;
    of_teams[7u * STRIDE + thread] = sum[1].w;
    workgroupBarrier();
    for (var i = thread; i < HEAD_DIM; i += WORKGROUP) {
        let at = (i / EIGHTS) * STRIDE + i % EIGHTS;
        var value = 0.0;
        for (var other = 0u; other < TEAMS; other++) {
            value += of_teams[at + other * LANES];
        }
        values[(i % EIGHTS) * 8u + i / EIGHTS] = value;
    }
    workgroupBarrier();
    finish(token, head, group.z, largest_of_all, total_of_all, thread);
}
