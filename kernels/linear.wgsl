// y[t, row] = sum over columns of W[row, c] * x[t, c], for TILE tokens at once: prefill. matvec.wgsl: for one token.
//
// A team of LANES threads computes four rows (of each of PARTS matrices: two for gate and up) for TILE tokens: its lanes
// take every LANES-th block of the rows, then add up. TEAMS teams make a workgroup of GROUP_ROWS rows.
// Expects LANES, TEAMS, WORKGROUP = LANES * TEAMS, ROWS = 4, TILE, PARTS, STEPS (blocks a row), N_ROWS (rows of a part);
// the weight format's load_block and block_dot; an input_*.wgsl (load_activation), a reduce_*.wgsl and a linear_*.wgsl
// (prepare, finish).

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let lane = thread % LANES;
    let team = thread / LANES;
    let group_row = group.x * GROUP_ROWS;
    let first_token = group.y * TILE;
    // past the end, a team repeats the last row, and nothing is stored
    let rows = min(vec4<u32>(group_row + team * 4u) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(N_ROWS - 1u)) * STEPS;

    var sums: array<vec4<f32>, PARTS * TILE>;
    for (var b = lane; b < STEPS; b += LANES) {
        for (var part = 0u; part < PARTS; part++) {
            let at = rows + vec4<u32>(part * N_ROWS * STEPS + b);
            let w0 = load_block(at.x);
            let w1 = load_block(at.y);
            let w2 = load_block(at.z);
            let w3 = load_block(at.w);
            for (var t = 0u; t < TILE; t++) {
                let x = load_activation(first_token + t, b);
                sums[part * TILE + t] += vec4<f32>(block_dot(w0, x), block_dot(w1, x), block_dot(w2, x), block_dot(w3, x));
            }
        }
    }

    for (var i = 0u; i < PARTS * TILE; i++) {
        let total = team_sum(sums[i], thread);
        if (lane < 4u) {
            values[i * GROUP_ROWS + team * 4u + lane] = total[lane];
        }
    }
    workgroupBarrier();
    finish(group_row, first_token, prepare(group_row, thread), thread);
}
